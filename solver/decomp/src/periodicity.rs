use crate::Box3;

/// Which axes of the simulated domain are periodic, and where they wrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Periodicity {
    domain: Box3,
    axes: [bool; 3],
}

impl Periodicity {
    /// No periodic axis.
    pub const NONE: Self = Self { domain: Box3::new([0.0; 3], [0.0; 3]), axes: [false; 3] };

    /// Periodic along the marked axes, with the period that the domain's side has there.
    ///
    /// A ghost layer must be thinner than every period: only the nearest image on each side is looked at.
    #[must_use]
    pub const fn new(domain: Box3, axes: [bool; 3]) -> Self {
        Self { domain, axes }
    }

    /// Whether an axis is periodic.
    #[must_use]
    pub fn is_periodic(&self, axis: usize) -> bool {
        self.axes[axis]
    }

    /// The period of an axis in metres, 0 when it is not periodic.
    #[must_use]
    pub fn period(&self, axis: usize) -> f64 {
        if self.axes[axis] { self.domain.length(axis) } else { 0.0 }
    }

    /// The coordinate of the image that is `shift` periods away: `x + shift * period`.
    #[must_use]
    pub fn image(&self, point: [f64; 3], shift: [i8; 3]) -> [f64; 3] {
        std::array::from_fn(|a| {
            if shift[a] == 0 { point[a] } else { point[a] + f64::from(shift[a]) * self.period(a) }
        })
    }

    /// The faces of a box that touch the region's boundary, moved to where a search has to look: to the domain's
    /// faces on periodic axes, to infinity elsewhere.
    pub(crate) fn outer(&self) -> Box3 {
        let face = |a: usize, at: f64, open: f64| if self.axes[a] { at } else { open };
        Box3::new(
            std::array::from_fn(|a| face(a, self.domain.min[a], f64::NEG_INFINITY)),
            std::array::from_fn(|a| face(a, self.domain.max[a], f64::INFINITY)),
        )
    }
}
