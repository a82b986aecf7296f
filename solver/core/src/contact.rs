//! Contact forces: which listed pairs touch, and what they do to each other.
//!
//! Pairs are oriented by global id, the lower one first, and their positions and velocities are exact copies on
//! every rank, so owner and ghost ranks get the same bits. Touching pairs are compacted first and then evaluated in
//! full vectors.

use crate::elementary::fifth_root;
use crate::guard::{Limit, Violation};
#[cfg(target_arch = "x86_64")]
use crate::lanes::{Avx2, Avx512};
use crate::lanes::{Instructions, Lanes, MAX_WIDTH, Portable};
use crate::list::{BLOCK, NeighbourList, PairList, WallList, valid};
use crate::material::{Coefficients, Damping};
use crate::model::{Model, Wall};
use crate::particles::Particles;
use crate::quanta::{CONTRIBUTION_QUANTA, magic};
use crate::record::{Load, Record};

/// What one evaluation of contacts saw. A pair across ranks is counted by the rank that owns the lower id, so that
/// sums over ranks count every pair once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contacts {
    /// Touching pairs of particles.
    pub touching: u64,
    /// Pairs that touch and did not at the previous step.
    pub opened: u64,
    /// Pairs that touched at the previous step and do not now.
    pub closed: u64,
    /// Contacts with walls.
    pub walls: u64,
}

impl std::ops::AddAssign for Contacts {
    fn add_assign(&mut self, other: Self) {
        self.touching += other.touching;
        self.opened += other.opened;
        self.closed += other.closed;
        self.walls += other.walls;
    }
}

/// Adds the forces of all contacts between owned particles, with walls and with ghosts to the loads.
///
/// # Errors
/// If an overlap or a force is beyond its limit.
pub fn contacts(
    model: &Model,
    particles: &mut Particles,
    list: &mut NeighbourList,
) -> Result<Contacts, Violation> {
    let mut found = inner_contacts(model, particles, list)?;
    found += ghost_contacts(model, particles, list)?;
    Ok(found)
}

/// The part of [`contacts`] that needs no ghosts: pairs of owned particles, and walls. It may run while updates of
/// ghosts are under way.
///
/// # Errors
/// If an overlap or a force is beyond its limit.
pub fn inner_contacts(
    model: &Model,
    particles: &mut Particles,
    list: &mut NeighbourList,
) -> Result<Contacts, Violation> {
    list.check(particles);
    let shifted = particles.wrapped != 0;
    let mut found = pairs(model, particles, &mut list.inner, shifted)?;
    found.walls = walls(model, particles, &mut list.walls)?;
    Ok(found)
}

/// The part of [`contacts`] between owned particles and ghosts.
///
/// # Errors
/// If an overlap or a force is beyond its limit.
pub fn ghost_contacts(
    model: &Model,
    particles: &mut Particles,
    list: &mut NeighbourList,
) -> Result<Contacts, Violation> {
    list.check(particles);
    pairs(model, particles, &mut list.outer, true)
}

/// What the passes below share: columns of the particles and constants of the model.
struct Pass<'a> {
    model: &'a Model,
    position: &'a [Record],
    velocity: &'a [Record],
    spin: &'a [Record],
    load: &'a mut [Load],
    material: &'a [u16],
    image: &'a [[i8; 4]],
    owned: usize,
    /// Largest normal force [N] whose contribution is exact in force and torque.
    force_limit: f64,
    /// Contact that broke a limit: first particle, second one if it was a pair, and overlap and force.
    culprit: Option<(u32, Option<u32>, f64, f64)>,
}

impl<'a> Pass<'a> {
    fn new(model: &'a Model, particles: &'a mut Particles) -> Self {
        // |F| <= Fn sqrt(1 + mu^2) and |torque| <= R mu Fn.
        let mu = model.materials.max_friction();
        let of_force = CONTRIBUTION_QUANTA * model.quanta.force / f64::sqrt(1.0 + mu * mu);
        let of_torque = CONTRIBUTION_QUANTA * model.quanta.torque / (mu * model.max_radius);
        Self {
            model,
            position: &particles.position,
            velocity: &particles.velocity,
            spin: &particles.spin,
            load: &mut particles.load,
            material: &particles.material,
            image: &particles.image,
            owned: particles.owned,
            force_limit: of_force.min(of_torque),
            culprit: None,
        }
    }

    #[cold]
    fn blame(&mut self, first: u32, second: Option<u32>, overlap: f64, force: f64) {
        if self.culprit.is_none() {
            self.culprit = Some((first, second, overlap, force));
        }
    }
}

fn outcome<T>(
    model: &Model,
    particles: &Particles,
    culprit: Option<(u32, Option<u32>, f64, f64)>,
    force_limit: f64,
    value: T,
) -> Result<T, Violation> {
    let Some((first, second, overlap, force)) = culprit else { return Ok(value) };
    let radius = |i: u32| particles.position[i as usize].scalar();
    let smaller = second.map_or(radius(first), |second| radius(first).min(radius(second)));
    let fraction = overlap / (2.0 * smaller);
    let limit = if !(fraction.is_finite() && force.is_finite()) {
        Limit::NotFinite
    } else if fraction > model.overlap_limit {
        Limit::Overlap { found: fraction, allowed: model.overlap_limit }
    } else {
        Limit::ForceRange { found: force, allowed: force_limit }
    };
    Err(Violation {
        limit,
        id: particles.id[first as usize],
        other: second.map(|second| particles.id[second as usize]),
        position: particles.position[first as usize].vector(),
    })
}

fn pairs(
    model: &Model,
    particles: &mut Particles,
    list: &mut PairList,
    shifted: bool,
) -> Result<Contacts, Violation> {
    let mut pass = Pass::new(model, particles);
    let found = dispatch_pairs(&mut pass, list, shifted);
    let (culprit, limit) = (pass.culprit, pass.force_limit);
    outcome(model, particles, culprit, limit, found)
}

fn walls(model: &Model, particles: &mut Particles, list: &mut WallList) -> Result<u64, Violation> {
    let mut found = 0;
    for (n, wall) in model.walls.iter().enumerate() {
        let mut pass = Pass::new(model, particles);
        let (touching, force) = dispatch_wall(&mut pass, wall, list.near(n));
        list.forces[n] = force;
        found += touching;
        let (culprit, limit) = (pass.culprit, pass.force_limit);
        outcome(model, particles, culprit, limit, ())?;
    }
    Ok(found)
}

#[expect(unsafe_code, reason = "calls kernels for processor features that Kernel has detected")]
fn dispatch_pairs(pass: &mut Pass<'_>, list: &mut PairList, shifted: bool) -> Contacts {
    // SAFETY: a Kernel of AVX2 or AVX-512 exists only where the processor has them; list.check() has proved that
    // all indices are in range.
    unsafe {
        match (pass.model.kernel.0, shifted) {
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx512, false) => pairs_avx512::<false>(pass, list),
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx512, true) => pairs_avx512::<true>(pass, list),
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx2, false) => pairs_avx2::<false>(pass, list),
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx2, true) => pairs_avx2::<true>(pass, list),
            (_, false) => pairs_in_lanes::<Portable, false>(pass, list),
            (_, true) => pairs_in_lanes::<Portable, true>(pass, list),
        }
    }
}

#[expect(unsafe_code, reason = "calls kernels for processor features that Kernel has detected")]
fn dispatch_wall(pass: &mut Pass<'_>, wall: &Wall, near: &[u32]) -> (u64, [f64; 3]) {
    // SAFETY: as in dispatch_pairs.
    unsafe {
        match pass.model.kernel.0 {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => wall_avx512(pass, wall, near),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => wall_avx2(pass, wall, near),
            _ => wall_in_lanes::<Portable>(pass, wall, near),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "compiled for AVX2")]
#[target_feature(enable = "avx2")]
unsafe fn pairs_avx2<const SHIFTED: bool>(pass: &mut Pass<'_>, list: &mut PairList) -> Contacts {
    // SAFETY: this function needs AVX2 and so promises it.
    unsafe { pairs_in_lanes::<Avx2, SHIFTED>(pass, list) }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "compiled for AVX-512")]
#[target_feature(enable = "avx512f,avx2")]
unsafe fn pairs_avx512<const SHIFTED: bool>(pass: &mut Pass<'_>, list: &mut PairList) -> Contacts {
    // SAFETY: this function needs AVX-512 and AVX2 and so promises them.
    unsafe { pairs_in_lanes::<Avx512, SHIFTED>(pass, list) }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "compiled for AVX2")]
#[target_feature(enable = "avx2")]
unsafe fn wall_avx2(pass: &mut Pass<'_>, wall: &Wall, near: &[u32]) -> (u64, [f64; 3]) {
    // SAFETY: this function needs AVX2 and so promises it.
    unsafe { wall_in_lanes::<Avx2>(pass, wall, near) }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "compiled for AVX-512")]
#[target_feature(enable = "avx512f,avx2")]
unsafe fn wall_avx512(pass: &mut Pass<'_>, wall: &Wall, near: &[u32]) -> (u64, [f64; 3]) {
    // SAFETY: this function needs AVX-512 and AVX2 and so promises them.
    unsafe { wall_in_lanes::<Avx512>(pass, wall, near) }
}

/// The contact law with its constants in every lane.
struct Law<V> {
    damping: Damping,
    /// Least normal force: zero, or none where attraction is allowed.
    floor: V,
    rate: V,
    /// Coefficients if there is only one material.
    single: Option<LawCoefficients<V>>,
    /// Zero, which rounds nothing, if rounding is off.
    force_magic: V,
    torque_magic: V,
    zero: V,
    half: V,
    one: V,
}

#[derive(Clone, Copy)]
struct LawCoefficients<V> {
    stiffness: V,
    damping: V,
    friction: V,
}

/// A contact as the law sees it. The first body is a sphere, the second a sphere or a wall.
struct Touch<V> {
    /// Overlap [m], not negative.
    overlap: V,
    /// Unit vector from the first to the second body.
    normal: [V; 3],
    /// Velocity of the second body's centre relative to the first's [m/s].
    velocity: [V; 3],
    /// Sum of both spins, each times the distance from its centre to the contact point [m/s].
    surface: [V; 3],
    /// Effective radius R* [m].
    radius: V,
    /// Sum of inverse masses 1/m* [1/kg].
    inverse_mass: V,
}

/// What the law gives.
struct Response<V> {
    /// Force on the first body [N], before rounding.
    force: [V; 3],
    /// Normal x tangential force [N]; times an arm, the torque on either body.
    moment: [V; 3],
    /// Normal force [N], positive where it repels.
    normal_force: V,
}

#[expect(unsafe_code, reason = "makes vectors, for which the caller promises the instructions")]
impl<V: Lanes> Law<V> {
    /// # Safety
    /// The processor must have the instructions of `V`.
    #[inline(always)]
    unsafe fn new(model: &Model) -> Self {
        // SAFETY: promised by the caller.
        unsafe {
            let table = &model.materials;
            let single = |c: &Coefficients| LawCoefficients {
                stiffness: V::splat(c.stiffness),
                damping: V::splat(c.damping),
                friction: V::splat(c.friction),
            };
            Self {
                damping: table.model.damping,
                floor: V::splat(if table.model.clip { 0.0 } else { f64::NEG_INFINITY }),
                rate: V::splat(table.model.tangential_rate),
                single: (table.count() == 1).then(|| single(&table.coefficients[0])),
                force_magic: V::splat(if model.rounding { magic(model.quanta.force) } else { 0.0 }),
                torque_magic: V::splat(if model.rounding { magic(model.quanta.torque) } else { 0.0 }),
                zero: V::splat(0.0),
                half: V::splat(0.5),
                one: V::splat(1.0),
            }
        }
    }

    /// Coefficients of the contacts in all lanes; `row` is the row of a lane's materials in the table.
    ///
    /// # Safety
    /// The processor must have the instructions of `V`.
    #[inline(always)]
    unsafe fn coefficients(&self, model: &Model, row: impl Fn(usize) -> usize) -> LawCoefficients<V> {
        if let Some(single) = self.single {
            return single;
        }
        let mut columns = [[0.0; MAX_WIDTH]; 3];
        for (n, row) in (0..V::WIDTH).map(row).enumerate() {
            let c = &model.materials.coefficients[row];
            columns[0][n] = c.stiffness;
            columns[1][n] = c.damping;
            columns[2][n] = c.friction;
        }
        // SAFETY: promised by the caller.
        unsafe {
            LawCoefficients {
                stiffness: V::load(&columns[0]),
                damping: V::load(&columns[1]),
                friction: V::load(&columns[2]),
            }
        }
    }

    /// The contact law: Hertz, damping, Coulomb friction without history. The one function for pairs and walls.
    ///
    /// Fn = 4/3 E* sqrt(R* overlap) overlap - c vn; Ft = min(mu Fn, rate m* |vt|) against the slip.
    #[inline(always)]
    fn respond(&self, c: LawCoefficients<V>, t: &Touch<V>) -> Response<V> {
        let normal_speed = dot(t.velocity, t.normal); // negative when approaching
        let turning = cross(t.surface, t.normal);
        let slip: [V; 3] = std::array::from_fn(|k| (t.velocity[k] - normal_speed * t.normal[k]) - turning[k]);

        let mass = self.one / t.inverse_mass;
        let secant = c.stiffness * (t.radius * t.overlap).sqrt();
        let coefficient = match self.damping {
            // sqrt(m* k) overlap^(1/4) = sqrt(m* k sqrt(overlap)), and secant is k sqrt(overlap).
            Damping::ConstantRestitution => c.damping * (mass * secant).sqrt(),
            Damping::ConstantCoefficient { .. } => {
                self.fifth_roots(c.damping * t.radius * (mass * mass * mass))
            }
        };
        let elastic = secant * t.overlap;
        let total = elastic - coefficient * normal_speed;
        let repulsion = self.zero.max(total);
        let normal_force = self.floor.max(total);

        let slip_speed = dot(slip, slip).sqrt();
        // 0/0, without slip and force, must give the second operand of min.
        let drag = (c.friction * repulsion / slip_speed).min(self.rate * mass);
        let friction = slip.map(|s| drag * s);
        Response {
            force: std::array::from_fn(|k| friction[k] - normal_force * t.normal[k]),
            moment: cross(t.normal, friction),
            normal_force,
        }
    }

    #[inline(always)]
    fn fifth_roots(&self, x: V) -> V {
        let mut lanes = [0.0; MAX_WIDTH];
        x.store(&mut lanes);
        let mut previous = (0.0, 0.0);
        for lane in &mut lanes[..V::WIDTH] {
            // All particles of one size have the same; do not compute it again.
            if *lane != previous.0 {
                previous = (*lane, fifth_root(*lane));
            }
            *lane = previous.1;
        }
        // SAFETY: `x` exists, so the processor has the instructions.
        unsafe { V::load(&lanes) }
    }

    #[inline(always)]
    fn round_force(&self, v: [V; 3]) -> [V; 3] {
        v.map(|x| (x + self.force_magic) - self.force_magic)
    }

    #[inline(always)]
    fn round_torque(&self, v: [V; 3]) -> [V; 3] {
        v.map(|x| (x + self.torque_magic) - self.torque_magic)
    }
}

#[inline(always)]
fn dot<V: Lanes>(a: [V; 3], b: [V; 3]) -> V {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

#[inline(always)]
fn cross<V: Lanes>(a: [V; 3], b: [V; 3]) -> [V; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// Shift [m] to add to `hi - lo`, as three arrays of lanes: the image numbers' difference times the box.
#[inline(always)]
fn shifts(pass: &Pass<'_>, lo: &[u32], hi: &[u32], count: usize) -> [[f64; MAX_WIDTH]; 3] {
    let length = pass.model.periodic.lengths();
    let mut shift = [[0.0; MAX_WIDTH]; 3];
    for n in 0..count {
        let (low, high) = (pass.image[lo[n] as usize], pass.image[hi[n] as usize]);
        for k in 0..3 {
            shift[k][n] = f64::from(high[k] - low[k]) * length[k];
        }
    }
    shift
}

/// `hi - lo` of the positions, with the image shift, and the two radii: the one expression for a pair's place.
///
/// # Safety
/// As [`Lanes::gather`].
#[expect(unsafe_code, reason = "unchecked indices, proved when the list was built")]
#[inline(always)]
unsafe fn separation<V: Lanes, const SHIFTED: bool>(
    pass: &Pass<'_>,
    lo: &[u32],
    hi: &[u32],
) -> ([V; 3], V, V) {
    // SAFETY: promised by the caller.
    unsafe {
        let a = V::gather(pass.position, lo);
        let b = V::gather(pass.position, hi);
        let mut d = [b[0] - a[0], b[1] - a[1], b[2] - a[2]];
        if SHIFTED {
            let shift = shifts(pass, lo, hi, V::WIDTH);
            d = std::array::from_fn(|k| d[k] + V::load(&shift[k]));
        }
        (d, a[3], b[3])
    }
}

/// # Safety
/// The processor must have the instructions of `V`; all indices of `list` must be below the number of particles.
#[expect(unsafe_code, reason = "vector kernel with unchecked indices")]
#[inline(always)]
unsafe fn pairs_in_lanes<V: Lanes, const SHIFTED: bool>(
    pass: &mut Pass<'_>,
    list: &mut PairList,
) -> Contacts {
    // SAFETY: promised by the caller.
    unsafe {
        let law = Law::<V>::new(pass.model);
        let mut found = Contacts::default();
        let mut lo = [0; BLOCK + MAX_WIDTH];
        let mut hi = [0; BLOCK + MAX_WIDTH];
        let zero = law.zero;
        let nowhere = Place { overlap: zero, normal: [zero; 3], radius_lo: zero, radius_hi: zero };
        let mut places = [nowhere; MOST_BATCHES];
        let mut waiting = 0;
        let count = list.count;
        for (block, before) in list.touching.iter_mut().enumerate() {
            let first = block * BLOCK;
            let list_lo = &list.lo[first..first + BLOCK];
            let list_hi = &list.hi[first..first + BLOCK];

            let mut touching = 0;
            for n in (0..BLOCK).step_by(V::WIDTH) {
                let (d, a, b) =
                    separation::<V, SHIFTED>(pass, &list_lo[n..n + V::WIDTH], &list_hi[n..n + V::WIDTH]);
                let reach = a + b;
                touching |= u64::from(dot(d, d).less(reach * reach)) << n;
            }
            touching &= valid(count, block);

            let mut counted = u64::MAX;
            if SHIFTED {
                counted =
                    (0..BLOCK).fold(0, |bits, n| bits | u64::from((list_lo[n] as usize) < pass.owned) << n);
            }
            found.touching += u64::from((touching & counted).count_ones());
            found.opened += u64::from((touching & !*before & counted).count_ones());
            found.closed += u64::from((!touching & *before & counted).count_ones());
            *before = touching;

            while touching != 0 {
                let n = touching.trailing_zeros() as usize;
                touching &= touching - 1;
                lo[waiting] = list_lo[n];
                hi[waiting] = list_hi[n];
                waiting += 1;
            }
            let n = waiting - waiting % V::WIDTH;
            pair_batches::<V, SHIFTED>(pass, &law, &mut places, &lo[..n], &hi[..n], n);
            for rest in n..waiting {
                lo[rest - n] = lo[rest];
                hi[rest - n] = hi[rest];
            }
            waiting -= n;
        }
        if waiting > 0 {
            for n in waiting..V::WIDTH {
                lo[n] = lo[0];
                hi[n] = hi[0];
            }
            pair_batches::<V, SHIFTED>(pass, &law, &mut places, &lo[..V::WIDTH], &hi[..V::WIDTH], waiting);
        }
        found
    }
}

/// Vectors that a block's contacts and what the one before left over may fill, at four lanes.
const MOST_BATCHES: usize = (BLOCK + MAX_WIDTH) / 4;

/// Where the pairs of one vector touch.
#[derive(Clone, Copy)]
struct Place<V> {
    overlap: V,
    normal: [V; 3],
    radius_lo: V,
    radius_hi: V,
}

/// Forces of the first `count` of the touching pairs `lo`, `hi`, which fill whole vectors.
///
/// First all places, then all forces: roots and divisions of one vector wait on each other, so the processor should
/// have those of the next ones at hand.
///
/// # Safety
/// As [`pairs_in_lanes`].
#[expect(unsafe_code, reason = "vector kernel with unchecked indices")]
#[inline(always)]
unsafe fn pair_batches<V: Lanes, const SHIFTED: bool>(
    pass: &mut Pass<'_>,
    law: &Law<V>,
    places: &mut [Place<V>; MOST_BATCHES],
    lo: &[u32],
    hi: &[u32],
    count: usize,
) {
    let batches = || lo.chunks_exact(V::WIDTH).zip(hi.chunks_exact(V::WIDTH));
    // SAFETY: promised by the caller.
    unsafe {
        for (place, (lo, hi)) in places.iter_mut().zip(batches()) {
            *place = pair_place::<V, SHIFTED>(pass, law, lo, hi);
        }
        for (n, (place, (lo, hi))) in places.iter().zip(batches()).enumerate() {
            pair_forces(pass, law, place, lo, hi, (count - n * V::WIDTH).min(V::WIDTH));
        }
    }
}

/// # Safety
/// As [`pairs_in_lanes`].
#[expect(unsafe_code, reason = "vector kernel with unchecked indices")]
#[inline(always)]
unsafe fn pair_place<V: Lanes, const SHIFTED: bool>(
    pass: &Pass<'_>,
    law: &Law<V>,
    lo: &[u32],
    hi: &[u32],
) -> Place<V> {
    // SAFETY: promised by the caller.
    let (d, radius_lo, radius_hi) = unsafe { separation::<V, SHIFTED>(pass, lo, hi) };
    let distance = dot(d, d).sqrt();
    // The root may round up to the sum of radii.
    let overlap = law.zero.max((radius_lo + radius_hi) - distance);
    let inverse = law.one / distance;
    Place { overlap, normal: d.map(|x| x * inverse), radius_lo, radius_hi }
}

/// Forces of the first `count` pairs of one vector.
///
/// # Safety
/// As [`pairs_in_lanes`].
#[expect(unsafe_code, reason = "vector kernel with unchecked indices")]
#[inline(always)]
unsafe fn pair_forces<V: Lanes>(
    pass: &mut Pass<'_>,
    law: &Law<V>,
    place: &Place<V>,
    lo: &[u32],
    hi: &[u32],
    count: usize,
) {
    // SAFETY: promised by the caller.
    unsafe {
        // First, because its branch would otherwise push all the vectors below out of their registers.
        let row =
            |n: usize| pass.model.materials.row(pass.material[lo[n] as usize], pass.material[hi[n] as usize]);
        let coefficients = law.coefficients(pass.model, row);
        let Place { overlap, normal, radius_lo, radius_hi } = *place;
        // Half of the overlap belongs to each side; both arms then end in the same point, and friction conserves
        // angular momentum.
        let arm_lo = radius_lo - law.half * overlap;
        let arm_hi = radius_hi - law.half * overlap;

        let u = V::gather(pass.velocity, lo);
        let v = V::gather(pass.velocity, hi);
        let p = V::gather(pass.spin, lo);
        let q = V::gather(pass.spin, hi);
        let touch = Touch {
            overlap,
            normal,
            velocity: [v[0] - u[0], v[1] - u[1], v[2] - u[2]],
            surface: std::array::from_fn(|k| arm_lo * p[k] + arm_hi * q[k]),
            radius: radius_lo * radius_hi / (radius_lo + radius_hi),
            inverse_mass: u[3] + v[3],
        };
        let response = law.respond(coefficients, &touch);

        let force = law.round_force(response.force);
        let opposite = force.map(|f| law.zero - f);
        let torque_lo = law.round_torque(response.moment.map(|m| arm_lo * m));
        let torque_hi = law.round_torque(response.moment.map(|m| arm_hi * m));
        V::scatter_add(pass.load, lo, count, force, torque_lo);
        V::scatter_add(pass.load, hi, count, opposite, torque_hi);

        let smaller = radius_lo.min(radius_hi);
        let bad = overlap.exceeds(V::splat(2.0 * pass.model.overlap_limit) * smaller)
            | magnitude(law, response.normal_force).exceeds(V::splat(pass.force_limit));
        let bad = bad & ((1 << count) - 1);
        if bad != 0 {
            let n = bad.trailing_zeros() as usize;
            let (overlap, force) = (lane(overlap, n), lane(response.normal_force, n));
            pass.blame(lo[n], Some(hi[n]), overlap, force);
        }
    }
}

#[inline(always)]
fn magnitude<V: Lanes>(law: &Law<V>, x: V) -> V {
    x.max(law.zero - x)
}

fn lane<V: Lanes>(x: V, n: usize) -> f64 {
    let mut lanes = [0.0; MAX_WIDTH];
    x.store(&mut lanes);
    lanes[n]
}

/// Contacts of the particles `near` with a wall: their number and the force on the wall [N].
///
/// # Safety
/// The processor must have the instructions of `V`; all indices must be below the number of particles.
#[expect(unsafe_code, reason = "vector kernel with unchecked indices")]
#[inline(always)]
unsafe fn wall_in_lanes<V: Lanes>(pass: &mut Pass<'_>, wall: &Wall, near: &[u32]) -> (u64, [f64; 3]) {
    // SAFETY: promised by the caller.
    unsafe {
        let law = Law::<V>::new(pass.model);
        let mut touching = 0;
        let mut sum = [0.0; 3];
        let mut waiting = 0;
        let mut index = [0; MAX_WIDTH];
        for i in near {
            let position = pass.position.get_unchecked(*i as usize).0;
            let gap: [f64; 3] = std::array::from_fn(|k| position[k] - wall.point[k]);
            let height = gap[0] * wall.normal[0] + gap[1] * wall.normal[1] + gap[2] * wall.normal[2];
            index[waiting] = *i;
            waiting += usize::from(height < position[3]);
            if waiting == V::WIDTH {
                wall_batch(pass, &law, wall, &index[..V::WIDTH], waiting, &mut sum);
                touching += waiting as u64;
                waiting = 0;
            }
        }
        if waiting > 0 {
            for n in waiting..V::WIDTH {
                index[n] = index[0];
            }
            wall_batch(pass, &law, wall, &index[..V::WIDTH], waiting, &mut sum);
            touching += waiting as u64;
        }
        (touching, sum)
    }
}

/// Forces of the first `count` of `V::WIDTH` particles that touch a wall: a sphere of infinite mass and radius.
///
/// # Safety
/// As [`wall_in_lanes`].
#[expect(unsafe_code, reason = "vector kernel with unchecked indices")]
#[inline(always)]
unsafe fn wall_batch<V: Lanes>(
    pass: &mut Pass<'_>,
    law: &Law<V>,
    wall: &Wall,
    index: &[u32],
    count: usize,
    sum: &mut [f64; 3],
) {
    // SAFETY: promised by the caller.
    unsafe {
        let position = V::gather(pass.position, index);
        let u = V::gather(pass.velocity, index);
        let p = V::gather(pass.spin, index);
        let out: [V; 3] = std::array::from_fn(|k| V::splat(wall.normal[k]));
        let gap = std::array::from_fn(|k| position[k] - V::splat(wall.point[k]));
        let radius = position[3];
        let overlap = law.zero.max(radius - dot(gap, out));
        let arm = radius - law.half * overlap;
        let touch = Touch {
            overlap,
            normal: out.map(|n| law.zero - n),
            velocity: [law.zero - u[0], law.zero - u[1], law.zero - u[2]],
            surface: [arm * p[0], arm * p[1], arm * p[2]],
            radius,
            inverse_mass: u[3],
        };
        let row = |n: usize| pass.model.materials.row(pass.material[index[n] as usize], wall.material);
        let coefficients = law.coefficients(pass.model, row);
        let response = law.respond(coefficients, &touch);

        let force = law.round_force(response.force);
        let torque = law.round_torque(response.moment.map(|m| arm * m));
        V::scatter_add(pass.load, index, count, force, torque);
        for (sum, force) in sum.iter_mut().zip(force) {
            let mut lanes = [0.0; MAX_WIDTH];
            force.store(&mut lanes);
            *sum -= lanes[..count].iter().sum::<f64>();
        }

        let bad = overlap.exceeds(V::splat(2.0 * pass.model.overlap_limit) * radius)
            | magnitude(law, response.normal_force).exceeds(V::splat(pass.force_limit));
        let bad = bad & ((1 << count) - 1);
        if bad != 0 {
            let n = bad.trailing_zeros() as usize;
            let (overlap, force) = (lane(overlap, n), lane(response.normal_force, n));
            pass.blame(index[n], None, overlap, force);
        }
    }
}
