use serde::{Deserialize, Serialize};

use crate::{Box3, Periodicity};

/// One plane of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// The axis that the plane is normal to: 0, 1, 2 for x, y, z.
    pub axis: u8,
    /// Where the plane lies, in metres; a particle at or below it is on the low side.
    pub at: f64,
    /// How many subdomains are on the low side.
    pub low: u32,
}

/// A region cut into boxes by a binary tree of planes.
///
/// Subdomains are numbered from 0 in the tree's order, the low side of a plane before its high side. Planes are kept
/// in preorder: a subtree of `n` subdomains is `n - 1` consecutive planes, first its own, then those of its low side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", deny_unknown_fields)]
pub struct Tree {
    region: Box3,
    cuts: Vec<Cut>,
}

/// A [`Tree`] as it is written, not yet checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    region: Box3,
    cuts: Vec<Cut>,
}

impl TryFrom<Parts> for Tree {
    type Error = TreeError;

    fn try_from(Parts { region, cuts }: Parts) -> Result<Self, TreeError> {
        Self::new(region, cuts)
    }
}

/// Why a list of planes is not a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The subdomain counts do not nest.
    #[error("tree.cuts[{cut}].low is {low}; the plane divides {parts} subdomains, so 1 to {} can be low", parts - 1)]
    Shape {
        /// Index of the plane.
        cut: usize,
        /// The count found.
        low: u32,
        /// How many subdomains the plane divides.
        parts: u32,
    },
    /// No such axis.
    #[error("tree.cuts[{cut}].axis is {axis}; axes are 0 (x), 1 (y) and 2 (z)")]
    Axis {
        /// Index of the plane.
        cut: usize,
        /// The axis found.
        axis: u8,
    },
}

/// A subtree: its first plane, its first subdomain and how many subdomains it holds.
#[derive(Clone, Copy)]
struct Subtree {
    cut: usize,
    first: u32,
    parts: u32,
}

impl Subtree {
    fn halves(self, low: u32) -> (Self, Self) {
        (
            Self { cut: self.cut + 1, first: self.first, parts: low },
            Self { cut: self.cut + low as usize, first: self.first + low, parts: self.parts - low },
        )
    }
}

impl Tree {
    /// A tree from its planes in preorder.
    ///
    /// # Errors
    /// When the counts of the planes do not nest or an axis does not exist.
    pub fn new(region: Box3, cuts: Vec<Cut>) -> Result<Self, TreeError> {
        let tree = Self { region, cuts };
        let mut open = vec![tree.root()];
        while let Some(subtree) = open.pop() {
            if subtree.parts < 2 {
                continue;
            }
            let Cut { axis, low, .. } = tree.cuts[subtree.cut];
            if low == 0 || low >= subtree.parts {
                return Err(TreeError::Shape { cut: subtree.cut, low, parts: subtree.parts });
            }
            if axis > 2 {
                return Err(TreeError::Axis { cut: subtree.cut, axis });
            }
            let (a, b) = subtree.halves(low);
            open.extend([b, a]);
        }
        Ok(tree)
    }

    /// Number of subdomains, at least 1.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.cuts.len() as u32 + 1
    }

    /// The region that the boxes tile.
    #[must_use]
    pub fn region(&self) -> Box3 {
        self.region
    }

    /// The planes in preorder.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    fn root(&self) -> Subtree {
        Subtree { cut: 0, first: 0, parts: self.parts() }
    }

    /// The subdomain that owns a point. Points outside the region belong to the subdomain beyond whose outer face
    /// they lie, so every point has exactly one owner.
    #[must_use]
    pub fn owner(&self, point: [f64; 3]) -> u32 {
        let mut at = self.root();
        while at.parts > 1 {
            let cut = self.cuts[at.cut];
            let (low, high) = at.halves(cut.low);
            at = if point[cut.axis as usize] <= cut.at { low } else { high };
        }
        at.first
    }

    /// The box of every subdomain, in the order of their numbers.
    #[must_use]
    pub fn boxes(&self) -> Vec<Box3> {
        let mut boxes = Vec::with_capacity(self.cuts.len() + 1);
        let mut open = vec![(self.root(), self.region)];
        while let Some((at, bounds)) = open.pop() {
            if at.parts == 1 {
                boxes.push(bounds);
                continue;
            }
            let cut = self.cuts[at.cut];
            let (low, high) = at.halves(cut.low);
            let (mut below, mut above) = (bounds, bounds);
            below.max[cut.axis as usize] = cut.at;
            above.min[cut.axis as usize] = cut.at;
            open.extend([(high, above), (low, below)]);
        }
        boxes
    }

    /// Calls `visit(subdomain, shift)` for every subdomain whose box, grown by `thickness` on every side, holds the
    /// point (shift `[0, 0, 0]`) or one of its periodic images (shift in periods). The owner itself is among them.
    ///
    /// Outer faces of the region lie at the domain's faces on periodic axes and at infinity on the others: a
    /// particle that has left the region is still a ghost of its owner's neighbours. Allocates nothing.
    pub fn touching(
        &self,
        point: [f64; 3],
        thickness: f64,
        periodicity: &Periodicity,
        mut visit: impl FnMut(u32, [i8; 3]),
    ) {
        let outer = periodicity.outer();
        // Which neighbouring images can touch the domain at all, per axis.
        let shifts: [(i8, i8); 3] = std::array::from_fn(|a| {
            if !periodicity.is_periodic(a) {
                return (0, 0);
            }
            let period = periodicity.period(a);
            let from = if point[a] - period >= outer.min[a] - thickness { -1 } else { 0 };
            let to = if point[a] + period <= outer.max[a] + thickness { 1 } else { 0 };
            (from, to)
        });
        for sx in shifts[0].0..=shifts[0].1 {
            for sy in shifts[1].0..=shifts[1].1 {
                for sz in shifts[2].0..=shifts[2].1 {
                    let shift = [sx, sy, sz];
                    let image = periodicity.image(point, shift);
                    if outer.holds(image, thickness) {
                        self.descend(self.root(), image, thickness, &mut |part| visit(part, shift));
                    }
                }
            }
        }
    }

    fn descend(&self, at: Subtree, point: [f64; 3], thickness: f64, visit: &mut impl FnMut(u32)) {
        if at.parts == 1 {
            return visit(at.first);
        }
        let cut = self.cuts[at.cut];
        let x = point[cut.axis as usize];
        let (low, high) = at.halves(cut.low);
        if x <= cut.at + thickness {
            self.descend(low, point, thickness, visit);
        }
        if x >= cut.at - thickness {
            self.descend(high, point, thickness, visit);
        }
    }
}
