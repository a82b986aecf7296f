//! Ghosts and migration against brute force, on random packings, trees, thicknesses and periodic axes.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::collections::BTreeSet;

use dem_comm::{Comm, Halo, Loads, local, migrate, neighbours};
use dem_core::{Particles, Periodic, Sphere};
use dem_decomp::{Box3, Periodicity, Serial, Tree, rcb};
use proptest::prelude::*;

const DOMAIN: Box3 = Box3::new([0.0; 3], [1.0, 0.8, 0.6]);
const DENSITY: f64 = 1000.0;

fn on_ranks<T: Send>(ranks: u32, work: impl Fn(Comm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = local::world(&vec![0; ranks as usize])
            .into_iter()
            .map(|rank| scope.spawn(|| work(Comm::new(Box::new(rank)))))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn sphere(id: u64, position: [f64; 3]) -> Sphere {
    Sphere { id, position, radius: 0.01, velocity: [0.3, -0.2, 0.1], spin: [1.0, 2.0, 3.0], material: 0 }
}

/// A ghost as brute force and as the halo name it: id and image.
type Name = (u64, [i8; 3]);

/// Every image of every particle that lies within `thickness` of the box of `part` on each axis, except the
/// particles that `part` owns themselves.
fn brute_force(
    points: &[[f64; 3]],
    tree: &Tree,
    part: u32,
    thickness: f64,
    axes: [bool; 3],
) -> BTreeSet<Name> {
    let bounds = tree.boxes()[part as usize];
    let region = tree.region();
    let side = |a: usize| if axes[a] { -1..=1 } else { 0..=0i8 };
    let mut ghosts = BTreeSet::new();
    for (id, point) in (0..).zip(points) {
        for sx in side(0) {
            for sy in side(1) {
                for sz in side(2) {
                    let shift = [sx, sy, sz];
                    let inside = (0..3).all(|a| {
                        let x = point[a] + f64::from(shift[a]) * DOMAIN.length(a);
                        let open = |face: f64, outer: f64| !axes[a] && face == outer;
                        (x >= bounds.min[a] - thickness || open(bounds.min[a], region.min[a]))
                            && (x <= bounds.max[a] + thickness || open(bounds.max[a], region.max[a]))
                    });
                    if inside && !(shift == [0; 3] && tree.owner(*point) == part) {
                        ghosts.insert((id, shift));
                    }
                }
            }
        }
    }
    ghosts
}

fn point() -> impl Strategy<Value = [f64; 3]> {
    [0.0..1.0f64, 0.0..0.8f64, 0.0..0.6f64]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_rank_owns_its_particles_and_gets_exactly_the_ghosts_of_brute_force(
        points in prop::collection::vec(point(), 1..300),
        parts in 1u32..10,
        thickness in 0.001..0.25f64,
        axes in [any::<bool>(), any::<bool>(), any::<bool>()],
        shuffle in any::<u32>(),
    ) {
        let tree = rcb(&points, None, DOMAIN, parts, &mut Serial);
        // Any permutation will do: ranks count down from a random start.
        let rank_of_subdomain: Vec<u32> = (0..parts).map(|s| (parts - 1 - s + shuffle % parts) % parts).collect();
        let periodicity = Periodicity::new(DOMAIN, axes);
        let periodic = Periodic { min: DOMAIN.min, max: DOMAIN.max, axes };
        let dt = 1e-3;
        let partners = neighbours(&tree, &rank_of_subdomain, thickness, DOMAIN, axes);
        let found = on_ranks(parts, |mut comm| {
            let me = comm.rank();
            let mut particles = Particles::new();
            // Particles start anywhere and go home with their loads, as after reading a checkpoint.
            for (id, point) in (0..).zip(&points).filter(|(id, _)| *id % u64::from(parts) == u64::from(me)) {
                particles.push(&sphere(id, *point), DENSITY);
            }
            let all: Vec<u32> = (0..parts).filter(|r| *r != me).collect();
            migrate(&mut comm, &mut particles, &tree, &rank_of_subdomain, &all, Loads::Move).unwrap();
            let mut halo = Halo::plan(
                me, &partners[me as usize], &particles, &tree, &rank_of_subdomain, thickness, &periodicity,
            ).unwrap();
            halo.create(&mut comm, &mut particles).unwrap();
            let owned: BTreeSet<u64> = particles.ids()[..particles.owned()].iter().copied().collect();
            let ghosts: Vec<Name> = (particles.owned()..particles.len())
                .map(|i| (particles.ids()[i], particles.images()[i][..3].try_into().unwrap()))
                .collect();
            // One step: ghosts must stay bitwise copies of their owners.
            for i in 0..particles.owned() {
                let v = particles.velocities()[i];
                let mut position = particles.positions()[i];
                for k in 0..3 {
                    position.0[k] += dt * v.0[k];
                }
                periodic.wrap(&mut position.0, &mut [0; 4]);
                *particles.position_mut(i) = position;
            }
            halo.update(&mut comm, &mut particles, dt, &periodic).unwrap();
            let state: Vec<(u64, [u64; 3])> = (0..particles.len())
                .map(|i| (particles.ids()[i], particles.positions()[i].vector().map(f64::to_bits)))
                .collect();
            (owned, ghosts, state, particles.owned(), comm.traffic().ghosts_received)
        });

        let mut moved = vec![[0; 3]; points.len()];
        for (_, _, state, owned, _) in &found {
            for (id, bits) in &state[..*owned] {
                moved[*id as usize] = *bits;
            }
        }
        for (rank, (owned, ghosts, state, _, received)) in found.iter().enumerate() {
            let part = rank_of_subdomain.iter().position(|r| *r == rank as u32).unwrap() as u32;
            let expected: BTreeSet<u64> =
                (0..).zip(&points).filter(|(_, p)| tree.owner(**p) == part).map(|(id, _)| id).collect();
            prop_assert_eq!(owned, &expected);
            let named: BTreeSet<Name> = ghosts.iter().copied().collect();
            prop_assert_eq!(named.len(), ghosts.len(), "a ghost came twice");
            prop_assert_eq!(&named, &brute_force(&points, &tree, part, thickness, axes));
            for (id, bits) in state {
                prop_assert_eq!(bits, &moved[*id as usize]);
            }
            // Two exchanges; images of own particles do not travel.
            let own = ghosts.iter().filter(|(id, _)| owned.contains(id)).count();
            prop_assert_eq!(received[0], 2 * (ghosts.len() - own) as u64);
        }
    }
}

#[test]
fn a_particle_that_jumped_beyond_all_neighbours_is_named() {
    let points: Vec<[f64; 3]> = (0..40).map(|i| [(f64::from(i) + 0.5) / 40.0, 0.4, 0.3]).collect();
    let bar = Box3::new([0.0, 0.3, 0.2], [1.0, 0.5, 0.4]);
    let tree = rcb(&points, None, bar, 4, &mut Serial);
    let home = [0, 1, 2, 3];
    let partners = neighbours(&tree, &home, 0.02, DOMAIN, [false; 3]);
    assert_eq!(partners, [vec![1], vec![0, 2], vec![1, 3], vec![2]]);
    let ends = on_ranks(4, |mut comm| {
        let me = comm.rank();
        let mut particles = Particles::new();
        if me == 0 {
            particles.push(&sphere(17, [0.9, 0.4, 0.3]), DENSITY);
        }
        let end = migrate(&mut comm, &mut particles, &tree, &home, &partners[me as usize], Loads::Stay);
        if end.is_err() {
            comm.abort(66);
        }
        end.map_err(|e| e.to_string())
    });
    assert_eq!(
        ends[0].as_ref().unwrap_err(),
        "particle 17 at (9e-1, 4e-1, 3e-1) m left rank 0 for rank 3, which is no neighbour"
    );
}
