//! Which particles are close: cells, sorting in space, pair lists with a skin.

use crate::model::Model;
use crate::particles::Particles;
use crate::periodic::Periodic;

/// Pairs per word of touch bits.
pub(crate) const BLOCK: usize = 64;

/// Pairs and walls within reach of particles, valid until some particle has moved by half the skin.
///
/// At a rebuild the caller clears ghosts, migrates, calls [`NeighbourList::sort`], adds ghosts and calls
/// [`NeighbourList::build`]. Memory is kept between builds.
#[derive(Clone, Debug, Default)]
pub struct NeighbourList {
    /// Pairs of owned particles.
    pub(crate) inner: PairList,
    /// Pairs of an owned particle and a ghost.
    pub(crate) outer: PairList,
    pub(crate) walls: WallList,
    grid: Grid,
    /// Owned positions at the last build.
    built_at: Vec<[f64; 3]>,
    /// Upper bound of the way of any owned particle since the last build [m].
    travel: f64,
    /// Particles with ghosts at the last build.
    len: usize,
    skin: f64,
}

/// Half list: every pair once, the lower global id first.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairList {
    /// Index of the particle with the lower id; padded to whole blocks with zeros.
    pub(crate) lo: Vec<u32>,
    /// Index of the particle with the higher id; padded alike.
    pub(crate) hi: Vec<u32>,
    /// Pairs without the padding.
    pub(crate) count: usize,
    /// One bit per pair: did it touch at the last evaluation.
    pub(crate) touching: Vec<u64>,
}

/// Bits of the pairs in `block` that are not padding.
#[inline(always)]
pub(crate) fn valid(count: usize, block: usize) -> u64 {
    let left = count - block * BLOCK;
    if left >= BLOCK { u64::MAX } else { (1 << left) - 1 }
}

impl PairList {
    fn clear(&mut self) {
        self.lo.clear();
        self.hi.clear();
        self.count = 0;
    }

    /// Pads to whole blocks and makes room for the bits.
    fn finish(&mut self) {
        self.count = self.lo.len();
        let blocks = self.count.div_ceil(BLOCK);
        self.lo.resize(blocks * BLOCK, 0);
        self.hi.resize(blocks * BLOCK, 0);
        self.touching.clear();
        self.touching.resize(blocks, 0);
    }

    /// Sets the bits of pairs that touched one step of `dt` [s] ago, when every particle was `dt * velocity` back.
    fn look_back(&mut self, particles: &Particles, periodic: &Periodic, dt: f64) {
        for n in 0..self.count {
            let (lo, hi) = (self.lo[n] as usize, self.hi[n] as usize);
            let mut d = separation(particles, periodic, lo, hi);
            for (k, d) in d.iter_mut().enumerate() {
                *d -= dt * (particles.velocity[hi].0[k] - particles.velocity[lo].0[k]);
            }
            let reach = particles.position[lo].scalar() + particles.position[hi].scalar();
            let touched = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] < reach * reach;
            self.touching[n / BLOCK] |= u64::from(touched) << (n % BLOCK);
        }
    }
}

/// `hi - lo` [m] with the image shift, as the kernels compute it.
fn separation(particles: &Particles, periodic: &Periodic, lo: usize, hi: usize) -> [f64; 3] {
    let images: [i8; 4] = std::array::from_fn(|k| particles.image[hi][k] - particles.image[lo][k]);
    let shift = periodic.shift(images);
    std::array::from_fn(|k| (particles.position[hi].0[k] - particles.position[lo].0[k]) + shift[k])
}

/// For each wall the owned particles within reach.
#[derive(Clone, Debug, Default)]
pub(crate) struct WallList {
    /// Particles near wall 0, then wall 1, ...
    index: Vec<u32>,
    /// Where each wall's particles begin, and the end.
    start: Vec<usize>,
    /// Force on each wall at the last evaluation [N].
    pub(crate) forces: Vec<[f64; 3]>,
}

impl WallList {
    pub(crate) fn near(&self, wall: usize) -> &[u32] {
        &self.index[self.start[wall]..self.start[wall + 1]]
    }

    fn build(&mut self, model: &Model, particles: &Particles) {
        self.index.clear();
        self.start.clear();
        self.forces.resize(model.walls.len(), [0.0; 3]);
        for wall in &model.walls {
            self.start.push(self.index.len());
            for (i, p) in particles.position[..particles.owned].iter().enumerate() {
                let height: f64 = (0..3).map(|k| (p.0[k] - wall.point[k]) * wall.normal[k]).sum();
                if height < p.scalar() + model.skin {
                    self.index.push(i as u32);
                }
            }
        }
        self.start.push(self.index.len());
    }
}

/// Cubic cells over the owned particles, x fastest.
#[derive(Clone, Debug, Default)]
struct Grid {
    origin: [f64; 3],
    cells: [usize; 3],
    /// Cells per metre.
    inverse: f64,
    /// First owned particle of every cell (particles are sorted by cell), and the end.
    start: Vec<u32>,
    cell_of: Vec<u32>,
    order: Vec<u32>,
}

impl Grid {
    /// Cells at least `size` [m] wide over the owned particles; coarser where there would be many empty ones.
    fn lay(&mut self, particles: &Particles, size: f64) {
        let owned = &particles.position[..particles.owned];
        let mut low = [f64::INFINITY; 3];
        let mut high = [f64::NEG_INFINITY; 3];
        for p in owned {
            for k in 0..3 {
                low[k] = low[k].min(p.0[k]);
                high[k] = high[k].max(p.0[k]);
            }
        }
        if owned.is_empty() {
            (low, high) = ([0.0; 3], [0.0; 3]);
        }
        let mut width = size;
        let most = 4.0 * owned.len() as f64 + 64.0;
        let cells =
            |width: f64| -> [f64; 3] { std::array::from_fn(|k| ((high[k] - low[k]) / width).floor() + 1.0) };
        while cells(width).iter().product::<f64>() > most {
            width *= 1.25;
        }
        self.origin = low;
        self.inverse = 1.0 / width;
        self.cells = cells(width).map(|n| n as usize);
    }

    /// Cell coordinates of a place; outside of the grid they are negative or too large by at most 2.
    fn place(&self, x: [f64; 3]) -> [i64; 3] {
        std::array::from_fn(|k| {
            let cell = ((x[k] - self.origin[k]) * self.inverse).floor() as i64;
            cell.clamp(-2, self.cells[k] as i64 + 1)
        })
    }

    fn number(&self, cell: [usize; 3]) -> usize {
        (cell[2] * self.cells[1] + cell[1]) * self.cells[0] + cell[0]
    }

    /// Counting sort of owned particles by cell: fills `start` and `order`.
    fn sort(&mut self, particles: &Particles) {
        let cells = self.cells.iter().product::<usize>();
        self.start.clear();
        self.start.resize(cells + 1, 0);
        let mut cell_of = std::mem::take(&mut self.cell_of);
        cell_of.clear();
        for p in &particles.position[..particles.owned] {
            let place = self.place(p.vector());
            // Rounding may put the outermost particles one cell out.
            let cell = std::array::from_fn(|k| place[k].clamp(0, self.cells[k] as i64 - 1) as usize);
            let number = self.number(cell);
            cell_of.push(number as u32);
            self.start[number + 1] += 1;
        }
        for n in 0..cells {
            self.start[n + 1] += self.start[n];
        }
        self.order.clear();
        self.order.resize(particles.owned, 0);
        for (i, cell) in cell_of.iter().enumerate() {
            let next = &mut self.start[*cell as usize];
            self.order[*next as usize] = i as u32;
            *next += 1;
        }
        // Every start has moved to the next cell's; move them back.
        self.start.copy_within(0..cells, 1);
        self.start[0] = 0;
        self.cell_of = cell_of;
    }

    /// Owned particles in the cells `low..=high` of one row of x; empty where the row is outside.
    fn row(&self, x: [i64; 2], y: i64, z: i64) -> std::ops::Range<usize> {
        if y < 0 || z < 0 || y >= self.cells[1] as i64 || z >= self.cells[2] as i64 {
            return 0..0;
        }
        let low = x[0].max(0);
        let high = x[1].min(self.cells[0] as i64 - 1);
        if low > high {
            return 0..0;
        }
        let base = self.number([0, y as usize, z as usize]);
        self.start[base + low as usize] as usize..self.start[base + high as usize + 1] as usize
    }
}

impl NeighbourList {
    /// An empty list, which is stale.
    pub fn new() -> Self {
        Self { travel: f64::INFINITY, ..Self::default() }
    }

    /// Sorts the owned particles in space, after migration and before ghosts are chosen: indices change, image
    /// numbers become zero. Ghosts must have been cleared.
    pub fn sort(&mut self, model: &Model, particles: &mut Particles) {
        particles.reset_images();
        self.grid.lay(particles, 2.0 * model.max_radius + model.skin);
        self.grid.sort(particles);
        particles.permute(&self.grid.order);
        self.travel = f64::INFINITY; // not valid until built
        self.len = usize::MAX;
    }

    /// Finds all pairs within reach, after [`NeighbourList::sort`] and with the ghosts in place.
    ///
    /// `last_step` [s] is the step by which positions have moved since contacts were last evaluated (zero at the
    /// start), so that contacts opened and closed in between are counted.
    ///
    /// # Panics
    /// If particles were added or removed since the sort.
    pub fn build(&mut self, model: &Model, particles: &Particles, last_step: f64) {
        let owned = particles.owned;
        assert_eq!(self.grid.order.len(), owned, "sort() before build()");
        let skin = model.skin;

        self.inner.clear();
        for i in 0..owned {
            let p = particles.position[i];
            let id = particles.id[i];
            let place = self.grid.place(p.vector());
            let [x, y, z]: [i64; 3] =
                std::array::from_fn(|k| place[k].clamp(0, self.grid.cells[k] as i64 - 1));
            let wide = [x - 1, x + 1];
            let own = self.grid.row([x, x + 1], y, z);
            let rows = [
                i + 1..own.end,
                self.grid.row(wide, y + 1, z),
                self.grid.row(wide, y - 1, z + 1),
                self.grid.row(wide, y, z + 1),
                self.grid.row(wide, y + 1, z + 1),
            ];
            for row in rows {
                for j in row {
                    let q = &particles.position[j];
                    let d: [f64; 3] = std::array::from_fn(|k| q.0[k] - p.0[k]);
                    let reach = p.0[3] + q.0[3] + skin;
                    if d[0] * d[0] + d[1] * d[1] + d[2] * d[2] < reach * reach {
                        let (lo, hi) = if id < particles.id[j] { (i, j) } else { (j, i) };
                        self.inner.lo.push(lo as u32);
                        self.inner.hi.push(hi as u32);
                    }
                }
            }
        }
        self.inner.finish();
        self.inner.look_back(particles, &model.periodic, last_step);

        self.outer.clear();
        for g in owned..particles.len() {
            let shift = model.periodic.shift(particles.image[g]);
            let p = particles.position[g];
            let at: [f64; 3] = std::array::from_fn(|k| p.0[k] + shift[k]);
            let [x, y, z] = self.grid.place(at);
            for (dy, dz) in [-1, 0, 1].into_iter().flat_map(|dz| [-1, 0, 1].map(|dy| (dy, dz))) {
                for j in self.grid.row([x - 1, x + 1], y + dy, z + dz) {
                    let q = &particles.position[j];
                    let d: [f64; 3] = std::array::from_fn(|k| q.0[k] - at[k]);
                    let reach = p.0[3] + q.0[3] + skin;
                    if d[0] * d[0] + d[1] * d[1] + d[2] * d[2] < reach * reach {
                        let (lo, hi) = if particles.id[g] < particles.id[j] { (g, j) } else { (j, g) };
                        self.outer.lo.push(lo as u32);
                        self.outer.hi.push(hi as u32);
                    }
                }
            }
        }
        self.outer.finish();
        self.outer.look_back(particles, &model.periodic, last_step);

        self.walls.build(model, particles);
        self.built_at.clear();
        self.built_at.extend(particles.position[..owned].iter().map(|p| p.vector()));
        self.travel = 0.0;
        self.len = particles.len();
        self.skin = skin;
    }

    /// Notes that no owned particle has moved further than `way` [m] since the last call.
    pub(crate) fn note_travel(&mut self, way: f64) {
        self.travel += way;
    }

    /// True if some owned particle may have moved by half the skin since the build, or there was none. The rank's
    /// own view: a list is stale if it is so on any rank.
    pub fn is_stale(&mut self, model: &Model, particles: &Particles) -> bool {
        if self.travel <= 0.5 * self.skin {
            return false;
        }
        if self.travel == f64::INFINITY {
            return true;
        }
        // The bound adds up the fastest particle of every step, which is rarely the same one: look closer.
        let mut farthest: f64 = 0.0;
        for (i, from) in self.built_at.iter().enumerate() {
            let p = &particles.position[i];
            let shift = model.periodic.shift(particles.image[i]);
            let d: [f64; 3] = std::array::from_fn(|k| (p.0[k] + shift[k]) - from[k]);
            farthest = farthest.max(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
        }
        self.travel = farthest.sqrt();
        self.travel > 0.5 * self.skin
    }

    /// Makes the list stale, so that the next step rebuilds it.
    pub fn invalidate(&mut self) {
        self.travel = f64::INFINITY;
    }

    /// Listed pairs of owned particles, and of owned particles with ghosts.
    pub fn pairs(&self) -> (usize, usize) {
        (self.inner.count, self.outer.count)
    }

    /// Force that owned particles put on each wall at the last evaluation [N].
    pub fn wall_forces(&self) -> &[[f64; 3]] {
        &self.walls.forces
    }

    /// Indices (owned and ghosts) of all listed pairs, lower id first.
    pub fn listed(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        [&self.inner, &self.outer]
            .into_iter()
            .flat_map(|list| list.lo.iter().copied().zip(list.hi.iter().copied()).take(list.count))
    }

    /// # Panics
    /// If the list is not of these particles: kernels use its indices unchecked.
    pub(crate) fn check(&self, particles: &Particles) {
        assert!(
            self.len == particles.len() && self.grid.order.len() == particles.owned,
            "the neighbour list is of other particles: sort() and build() it after they change"
        );
    }
}
