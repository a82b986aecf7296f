//! Recursive coordinate bisection (Berger and Bokhari, IEEE Trans. Comput. C-36, 1987), numbered as Zoltan does.

use crate::{Box3, Cut, Reduce, Tree};

/// Cuts a region into `parts` boxes of equal weight by recursive coordinate bisection.
///
/// Of `n` subdomains `ceil(n / 2)` go to the low side. The longest side is cut (of equal sides the first of x, y, z),
/// first at the fraction of its length that the low side's share asks for; the plane moves only if that balances the
/// weights strictly better. A particle at or below the plane goes low, and the plane finally lies midway between the
/// two neighbouring coordinates, if there is one on either side.
///
/// `points` are this participant's particles (in metres; those outside the region count at its faces), `weights`
/// their weights (1 each when absent). All participants must call with the same `region` and `parts` and receive the
/// same tree, whatever the distribution of the particles. Per level of the tree there are at most eleven collective
/// calls for up to 256 boxes, at most nineteen beyond.
///
/// # Panics
/// When `parts` is 0 or `weights` has another length than `points`.
pub fn rcb(
    points: &[[f64; 3]],
    weights: Option<&[u64]>,
    region: Box3,
    parts: u32,
    reduce: &mut impl Reduce,
) -> Tree {
    bisect(points, weights, region, Share::Parts(parts), reduce)
}

/// Like [`rcb`], but cuts the region into one box per node first, of a size in proportion to the node's capacity
/// (ranks), and then each node's box into one box per rank. The subdomains of a node have consecutive numbers.
///
/// # Panics
/// When there is no node, a capacity is 0, or `weights` has another length than `points`.
pub fn node_first(
    points: &[[f64; 3]],
    weights: Option<&[u64]>,
    region: Box3,
    capacities: &[u32],
    reduce: &mut impl Reduce,
) -> Tree {
    bisect(points, weights, region, Share::of_nodes(capacities), reduce)
}

/// What a box is still to be divided into.
#[derive(Clone, Copy)]
enum Share<'a> {
    Parts(u32),
    /// At least two nodes.
    Nodes(&'a [u32]),
}

impl<'a> Share<'a> {
    fn of_nodes(capacities: &'a [u32]) -> Self {
        match capacities {
            [one] => Self::Parts(*one),
            more => Self::Nodes(more),
        }
    }

    fn parts(self) -> u32 {
        match self {
            Self::Parts(parts) => parts,
            Self::Nodes(capacities) => capacities.iter().sum(),
        }
    }

    fn halves(self) -> (Self, Self) {
        match self {
            Self::Parts(parts) => (Self::Parts(parts.div_ceil(2)), Self::Parts(parts / 2)),
            Self::Nodes(capacities) => {
                let (low, high) = capacities.split_at(capacities.len().div_ceil(2));
                (Self::of_nodes(low), Self::of_nodes(high))
            }
        }
    }
}

/// A box that is to be cut, with the particles of this participant in it.
struct Work<'a> {
    bounds: Box3,
    share: Share<'a>,
    /// Where its plane goes in the tree's preorder.
    slot: usize,
    members: Vec<u32>,
}

fn bisect(
    points: &[[f64; 3]],
    weights: Option<&[u64]>,
    region: Box3,
    share: Share<'_>,
    reduce: &mut impl Reduce,
) -> Tree {
    assert!(weights.is_none_or(|w| w.len() == points.len()), "one weight per point");
    assert!(
        match share {
            Share::Parts(parts) => parts > 0,
            Share::Nodes(capacities) => !capacities.is_empty() && !capacities.contains(&0),
        },
        "at least one subdomain, and no node without one"
    );
    let parts = share.parts();
    let mut cuts = vec![Cut { axis: 0, at: 0.0, low: 0 }; parts as usize - 1];
    let mut level =
        vec![Work { bounds: region, share, slot: 0, members: (0..points.len() as u32).collect() }];
    level.retain(|work| work.share.parts() > 1);
    while !level.is_empty() {
        let planes = find_planes(points, weights, &level, reduce);
        let mut next = Vec::with_capacity(2 * level.len());
        for (Work { bounds, share, slot, members }, at) in level.into_iter().zip(planes) {
            let axis = bounds.longest_axis();
            let (low, high) = share.halves();
            cuts[slot] = Cut { axis: axis as u8, at, low: low.parts() };
            let (below, above) = members.into_iter().partition(|&i| points[i as usize][axis] <= at);
            let (mut low_bounds, mut high_bounds) = (bounds, bounds);
            low_bounds.max[axis] = at;
            high_bounds.min[axis] = at;
            let high_slot = slot + low.parts() as usize;
            next.push(Work { bounds: low_bounds, share: low, slot: slot + 1, members: below });
            next.push(Work { bounds: high_bounds, share: high, slot: high_slot, members: above });
        }
        next.retain(|work| work.share.parts() > 1);
        level = next;
    }
    Tree::new(region, cuts).expect("halves() gives both sides at least one subdomain")
}

/// The search for one plane. Coordinates are searched as integers of the same order (`key`), so that a range halves
/// exactly; the range holds the crossing, the smallest coordinate at which more than the target weight lies below or
/// at it.
struct Search {
    axis: usize,
    /// The plane at the target fraction of the side.
    trial: f64,
    parts: u64,
    low_parts: u64,
    total: u64,
    /// Weight at or below the trial plane.
    below_trial: u64,
    /// Range of keys that holds the crossing.
    from: u64,
    to: u64,
    /// Weight below the range, and in it.
    below: u64,
    inside: u64,
    found: bool,
    /// Key and weight of this participant's particles in the range.
    keys: Vec<(u64, u64)>,
}

impl Search {
    /// By how much a low side of weight `low` misses the target, in units of `1 / parts` of the weights.
    fn miss(&self, low: u64) -> u128 {
        (u128::from(low) * u128::from(self.parts))
            .abs_diff(u128::from(self.total) * u128::from(self.low_parts))
    }

    fn exceeds_target(&self, low: u64) -> bool {
        u128::from(low) * u128::from(self.parts) > u128::from(self.total) * u128::from(self.low_parts)
    }

    fn bin_width(&self, bins: usize) -> u64 {
        (self.to - self.from) / bins as u64 + 1
    }

    /// Narrows the range to the bin that holds the crossing.
    fn narrow(&mut self, histogram: &[u64]) {
        let width = self.bin_width(histogram.len());
        let mut below = self.below;
        for (bin, &weight) in histogram.iter().enumerate() {
            if self.exceeds_target(below + weight) {
                self.from += bin as u64 * width;
                self.to = self.to.min(self.from + (width - 1));
                self.below = below;
                self.inside = weight;
                break;
            }
            below += weight;
        }
        self.found = self.from == self.to;
        let range = self.from..=self.to;
        self.keys.retain(|(key, _)| range.contains(key));
    }
}

/// An integer with the order of finite floating-point numbers (IEEE 754, total order; both zeros are one).
fn key(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

fn coordinate(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

/// Finds the planes of all boxes of one level together.
fn find_planes(
    points: &[[f64; 3]],
    weights: Option<&[u64]>,
    level: &[Work<'_>],
    reduce: &mut impl Reduce,
) -> Vec<f64> {
    let weight = |i: u32| weights.map_or(1, |w| w[i as usize]);
    // A particle outside the region counts at its face: planes then never leave the box that they cut.
    let inside = |work: &Work<'_>, axis: usize, i: u32| {
        points[i as usize][axis].clamp(work.bounds.min[axis], work.bounds.max[axis])
    };

    let mut sums = Vec::with_capacity(2 * level.len());
    let mut searches = Vec::with_capacity(level.len());
    for work in level {
        let axis = work.bounds.longest_axis();
        let (parts, low_parts) = (work.share.parts(), work.share.halves().0.parts());
        let trial =
            work.bounds.min[axis] + work.bounds.length(axis) * (f64::from(low_parts) / f64::from(parts));
        let mut keys = Vec::with_capacity(work.members.len());
        let (mut total, mut below_trial) = (0, 0);
        for &i in &work.members {
            let (x, w) = (inside(work, axis, i), weight(i));
            total += w;
            if x <= trial {
                below_trial += w;
            }
            keys.push((key(x), w));
        }
        sums.extend([total, below_trial]);
        searches.push(Search {
            axis,
            trial,
            parts: parts.into(),
            low_parts: low_parts.into(),
            total: 0,
            below_trial: 0,
            from: key(work.bounds.min[axis]),
            to: key(work.bounds.max[axis]),
            below: 0,
            inside: 0,
            found: false,
            keys,
        });
    }
    reduce.sum(&mut sums);
    for (search, sum) in searches.iter_mut().zip(sums.chunks_exact(2)) {
        (search.total, search.below_trial) = (sum[0], sum[1]);
    }

    // What the trial plane balances exactly cannot be balanced better; every other box is searched.
    let mut open: Vec<usize> =
        (0..searches.len()).filter(|&s| searches[s].miss(searches[s].below_trial) > 0).collect();
    let searched = open.clone();
    let bins = ((1 << 16) / open.len().max(1)).clamp(16, 256);
    while !open.is_empty() {
        let mut histograms = vec![0; bins * open.len()];
        for (&s, histogram) in open.iter().zip(histograms.chunks_exact_mut(bins)) {
            let search = &searches[s];
            let width = search.bin_width(bins);
            for &(key, w) in &search.keys {
                histogram[((key - search.from) / width) as usize] += w;
            }
        }
        reduce.sum(&mut histograms);
        for (&s, histogram) in open.iter().zip(histograms.chunks_exact(bins)) {
            searches[s].narrow(histogram);
        }
        open.retain(|&s| !searches[s].found);
    }

    // The coordinates next to the trial plane and next to the crossing, on either side.
    let mut lower = vec![f64::NEG_INFINITY; 2 * level.len()];
    let mut upper = vec![f64::INFINITY; 2 * level.len()];
    for (s, (work, search)) in level.iter().zip(&searches).enumerate() {
        let crossing = coordinate(search.from);
        let (lower, upper) = (&mut lower[2 * s..2 * s + 2], &mut upper[2 * s..2 * s + 2]);
        for &i in &work.members {
            let x = inside(work, search.axis, i);
            if x <= search.trial {
                lower[0] = lower[0].max(x);
            } else {
                upper[0] = upper[0].min(x);
            }
            if x < crossing {
                lower[1] = lower[1].max(x);
            } else if x > crossing {
                upper[1] = upper[1].min(x);
            }
        }
    }
    reduce.max(&mut lower);
    reduce.min(&mut upper);

    let mut searched = searched.into_iter().peekable();
    searches
        .iter()
        .enumerate()
        .map(|(s, search)| {
            let (mut best, mut between) = (search.miss(search.below_trial), (lower[2 * s], upper[2 * s]));
            if searched.next_if_eq(&s).is_some() {
                let crossing = coordinate(search.from);
                let (before, after) = (lower[2 * s + 1], upper[2 * s + 1]);
                for (low, gap) in
                    [(search.below, (before, crossing)), (search.below + search.inside, (crossing, after))]
                {
                    let has_both_sides = gap.0.is_finite() && gap.1.is_finite();
                    if has_both_sides && search.miss(low) < best {
                        (best, between) = (search.miss(low), gap);
                    }
                }
            }
            if between.0.is_finite() && between.1.is_finite() { midway(between) } else { search.trial }
        })
        .collect()
}

/// The middle of two coordinates, at least the lower and below the upper one.
fn midway((low, high): (f64, f64)) -> f64 {
    let middle = low + (high - low) * 0.5;
    if middle < high { middle } else { low }
}
