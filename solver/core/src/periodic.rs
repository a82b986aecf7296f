//! Periodic axes of the domain: the one place where a coordinate is wrapped or shifted.

/// The domain's box and which of its axes are periodic.
///
/// A particle is wrapped in the step in which it crosses a face, never at a rebuild, so that the bits of its
/// coordinate do not depend on when lists were built. An image number counts how many box lengths must be added to
/// the wrapped coordinate to get back to the place that the neighbour list knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Periodic {
    /// Lower corner [m].
    pub min: [f64; 3],
    /// Upper corner [m].
    pub max: [f64; 3],
    /// Whether opposite faces of an axis are the same place.
    pub axes: [bool; 3],
}

impl Periodic {
    /// No periodic axis.
    pub const NONE: Self = Self { min: [0.0; 3], max: [0.0; 3], axes: [false; 3] };

    /// True if at least one axis is periodic.
    pub fn any(&self) -> bool {
        self.axes.iter().any(|a| *a)
    }

    /// Lengths of the periodic axes [m], zero on the others.
    pub fn lengths(&self) -> [f64; 3] {
        std::array::from_fn(|k| if self.axes[k] { self.max[k] - self.min[k] } else { 0.0 })
    }

    /// Brings `position` back into the box and changes `image` so that `position + image * length` stays the same
    /// place. Returns the number of faces crossed. Wrapped coordinates are in `[min, max)`.
    pub fn wrap(&self, position: &mut [f64; 4], image: &mut [i8; 4]) -> u32 {
        let mut crossed = 0;
        for k in 0..3 {
            if !self.axes[k] {
                continue;
            }
            let length = self.max[k] - self.min[k];
            if position[k] >= self.max[k] {
                position[k] -= length;
                image[k] += 1;
                crossed += 1;
            } else if position[k] < self.min[k] {
                // A tiny step below the lower face may round to the upper face, which belongs to the next image.
                position[k] = (position[k] + length).min(self.max[k].next_down());
                image[k] -= 1;
                crossed += 1;
            }
        }
        crossed
    }

    /// Changes `image` as [`Periodic::wrap`] did where a coordinate moved from `old` to `new` by more than half a
    /// box, that is, over a face.
    pub(crate) fn follow(&self, old: &[f64; 4], new: &[f64; 4], image: &mut [i8; 4]) {
        for k in 0..3 {
            if self.axes[k] {
                let half = 0.5 * (self.max[k] - self.min[k]);
                if new[k] - old[k] > half {
                    image[k] -= 1;
                } else if old[k] - new[k] > half {
                    image[k] += 1;
                }
            }
        }
    }

    /// The shift [m] that `images` box lengths make. Exact for the images that occur (at most 2).
    pub fn shift(&self, images: [i8; 4]) -> [f64; 3] {
        let length = self.lengths();
        std::array::from_fn(|k| f64::from(images[k]) * length[k])
    }
}
