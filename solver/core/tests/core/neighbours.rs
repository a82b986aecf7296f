//! The neighbour list against brute force.

use std::collections::BTreeMap;

use dem_core::{Periodic, Quanta, Sphere};
use proptest::prelude::*;

use crate::sim::{Physics, Sim, sphere};

/// Pairs (lower id, higher id, image of the higher relative to the lower) within reach, by looking at all.
fn brute_force(spheres: &[Sphere], periodic: &Periodic, skin: f64) -> Vec<(u64, u64, [i8; 3])> {
    let length = periodic.lengths();
    let images = |k: usize| if periodic.axes[k] { -1..=1i8 } else { 0..=0 };
    let mut pairs = Vec::new();
    for a in spheres {
        for b in spheres.iter().filter(|b| a.id < b.id) {
            for i in images(0) {
                for j in images(1) {
                    for k in images(2) {
                        let image = [i, j, k];
                        let square: f64 = (0..3)
                            .map(|k| b.position[k] - a.position[k] + f64::from(image[k]) * length[k])
                            .map(|d| d * d)
                            .sum();
                        let reach = a.radius + b.radius + skin;
                        if square < reach * reach {
                            pairs.push((a.id, b.id, image));
                        }
                    }
                }
            }
        }
    }
    pairs.sort_unstable();
    pairs
}

fn spheres() -> impl Strategy<Value = Vec<Sphere>> {
    let one = ([0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64], 0.03..0.1f64);
    (prop::collection::vec(one, 1..60), any::<u64>()).prop_map(|(all, salt)| {
        let place = |(n, (position, radius)): (usize, ([f64; 3], f64))| {
            // Ids in no order of place.
            let id = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
            sphere(id, position, radius, [0.0; 3])
        };
        all.into_iter().enumerate().map(place).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_list_has_exactly_the_pairs_within_reach(
        spheres in spheres(),
        axes in any::<[bool; 3]>(),
        skin in 0.001..0.05f64,
        cuts in prop::collection::vec(0.0..1.0f64, 0..3),
    ) {
        let mut cuts = cuts;
        cuts.sort_by(f64::total_cmp);
        let mut model = Physics::elastic(1e7).model(1e-6, 0.1);
        model.periodic = Periodic { min: [0.0; 3], max: [1.0; 3], axes };
        model.skin = skin;
        // Random places overlap as they like: nothing is evaluated beyond what the limits allow.
        model.overlap_limit = f64::MAX;
        model.quanta = Quanta { force: 1.0, torque: 1.0 };
        let sim = Sim::on_ranks(model.clone(), &spheres, &cuts);

        // A pair within a rank is listed once; across ranks or images it is listed once for each owned end.
        let mut listed: BTreeMap<(u64, u64, [i8; 3]), u32> = BTreeMap::new();
        for rank in &sim.ranks {
            let p = &rank.particles;
            for (lo, hi) in rank.list.listed() {
                let (lo, hi) = (lo as usize, hi as usize);
                prop_assert!(p.ids()[lo] < p.ids()[hi]);
                let image = std::array::from_fn(|k| p.images()[hi][k] - p.images()[lo][k]);
                let ends = u32::from(lo < p.owned()) + u32::from(hi < p.owned());
                *listed.entry((p.ids()[lo], p.ids()[hi], image)).or_default() += ends;
            }
        }
        for (pair, ends) in &listed {
            prop_assert_eq!(*ends, 2, "pair {:?} acts on {} ends", pair, ends);
        }
        let listed: Vec<_> = listed.into_keys().collect();
        prop_assert_eq!(listed, brute_force(&spheres, &model.periodic, skin));
    }
}
