//! Velocity Verlet in its parts, with guards.
//!
//! A step is [`kick_drift`], exchange of ghosts, [`crate::contacts`], [`kick`]. Where nothing has to be looked at
//! between two steps, [`kick_kick_drift`] does the end of one and the start of the next in one pass over memory,
//! with the same bits.

use crate::guard::{Limit, Violation};
use crate::list::NeighbourList;
use crate::model::Model;
use crate::particles::{Particles, drift};
use crate::record::{Load, Record};

/// What a drift saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Drift {
    /// Crossings of each periodic face by owned particles: low x, high x, low y, high y, low z, high z.
    pub crossings: [u64; 6],
    /// Largest speed [m/s].
    pub max_speed: f64,
}

/// Half a kick, then a drift by a whole step; clears all loads.
///
/// # Errors
/// If a particle moves by more than half the skin or to a place that is not a number.
pub fn kick_drift(
    model: &Model,
    particles: &mut Particles,
    list: &mut NeighbourList,
) -> Result<Drift, Violation> {
    advance::<1>(model, particles, list)
}

/// The second half kick of a step: velocities and positions are of the same instant afterwards.
///
/// # Errors
/// If a sum of forces or torques has left its exact range.
pub fn kick(model: &Model, particles: &mut Particles) -> Result<(), Violation> {
    let kick = Kick::new(model);
    let owned = particles.owned;
    let columns = particles.velocity[..owned].iter_mut().zip(&mut particles.spin[..owned]);
    let mut good = true;
    for ((velocity, spin), load) in columns.zip(&particles.load[..owned]) {
        good &= kick.load_is_exact(load);
        kick.half(velocity, spin, load);
    }
    if good { Ok(()) } else { Err(load_violation(model, particles)) }
}

/// [`kick`] and then [`kick_drift`], in one pass.
///
/// # Errors
/// As those.
pub fn kick_kick_drift(
    model: &Model,
    particles: &mut Particles,
    list: &mut NeighbourList,
) -> Result<Drift, Violation> {
    advance::<2>(model, particles, list)
}

/// Constants of a half kick.
struct Kick {
    half_step: f64,
    gravity: [f64; 4],
    force_range: f64,
    torque_range: f64,
}

impl Kick {
    fn new(model: &Model) -> Self {
        let [x, y, z] = model.gravity;
        // Without rounding there is no range to leave, but what is not a number must still be found.
        let range = |range| if model.rounding { range } else { f64::MAX };
        Self {
            half_step: 0.5 * model.dt,
            gravity: [x, y, z, 0.0],
            force_range: range(model.quanta.force_range()),
            torque_range: range(model.quanta.torque_range()),
        }
    }

    /// Half a kick. The fourth values of loads are zero, so those of velocity and spin stay.
    #[inline(always)]
    fn half(&self, velocity: &mut Record, spin: &mut Record, load: &Load) {
        let inverse_mass = velocity.0[3];
        let inverse_inertia = spin.0[3];
        for k in 0..4 {
            velocity.0[k] += self.half_step * (load.force.0[k] * inverse_mass + self.gravity[k]);
            spin.0[k] += self.half_step * (load.torque.0[k] * inverse_inertia);
        }
    }

    /// False also for what is not a number.
    #[inline(always)]
    fn load_is_exact(&self, load: &Load) -> bool {
        let mut exact = true;
        for k in 0..4 {
            exact &= load.force.0[k].abs() <= self.force_range;
            exact &= load.torque.0[k].abs() <= self.torque_range;
        }
        exact
    }
}

/// `HALVES` half kicks and a drift.
fn advance<const HALVES: usize>(
    model: &Model,
    particles: &mut Particles,
    list: &mut NeighbourList,
) -> Result<Drift, Violation> {
    let kick = Kick::new(model);
    let owned = particles.owned;
    let allowed = 0.5 * model.skin / model.dt;
    let allowed = allowed * allowed;
    let wraps = model.periodic.any();
    let mut found = Drift::default();
    let mut exact = true;
    let mut slow = true;
    let mut fastest = 0.0;

    let (loads, ghost_loads) = particles.load.split_at_mut(owned);
    let positions = particles.position[..owned].iter_mut().zip(&mut particles.image[..owned]);
    let motions = particles.velocity[..owned].iter_mut().zip(&mut particles.spin[..owned]);
    for (((position, image), (velocity, spin)), load) in positions.zip(motions).zip(loads) {
        exact &= kick.load_is_exact(load);
        for _ in 0..HALVES {
            kick.half(velocity, spin, load);
        }
        let v = &velocity.0;
        let square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
        slow &= square <= allowed;
        fastest = f64::max(fastest, square);
        drift(&mut position.0, v, model.dt);
        if wraps {
            let before = *image;
            if model.periodic.wrap(&mut position.0, image) > 0 {
                for k in 0..3 {
                    found.crossings[2 * k] += u64::from(image[k] < before[k]);
                    found.crossings[2 * k + 1] += u64::from(image[k] > before[k]);
                }
            }
        }
        *load = Load::default();
    }
    ghost_loads.fill(Load::default());
    particles.wrapped += found.crossings.iter().sum::<u64>();

    if !exact {
        return Err(load_violation(model, particles));
    }
    if !slow {
        return Err(travel_violation(model, particles));
    }
    found.max_speed = f64::sqrt(fastest);
    list.note_travel(found.max_speed * model.dt);
    Ok(found)
}

#[cold]
fn load_violation(model: &Model, particles: &Particles) -> Violation {
    let kick = Kick::new(model);
    let largest = |r: &Record| r.vector().iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    let worst = (0..particles.owned).filter(|i| !kick.load_is_exact(&particles.load[*i]));
    let Some(i) = worst.min_by_key(|i| particles.id[*i]) else {
        return not_finite(particles);
    };
    let load = &particles.load[i];
    let limit = if !load.force.0.iter().chain(&load.torque.0).all(|x| x.is_finite()) {
        Limit::NotFinite
    } else if largest(&load.force) > kick.force_range {
        Limit::ForceRange { found: largest(&load.force), allowed: kick.force_range }
    } else {
        Limit::TorqueRange { found: largest(&load.torque), allowed: kick.torque_range }
    };
    Violation { limit, id: particles.id[i], other: None, position: particles.position[i].vector() }
}

#[cold]
fn not_finite(particles: &Particles) -> Violation {
    let bad = |i: &usize| {
        let (x, v, w) = (&particles.position[*i], &particles.velocity[*i], &particles.spin[*i]);
        !x.0.iter().chain(&v.0).chain(&w.0).all(|n| n.is_finite())
    };
    let i = (0..particles.owned).filter(bad).min_by_key(|i| particles.id[*i]).unwrap_or(0);
    Violation {
        limit: Limit::NotFinite,
        id: particles.id[i],
        other: None,
        position: particles.position[i].vector(),
    }
}

#[cold]
fn travel_violation(model: &Model, particles: &Particles) -> Violation {
    let allowed = 0.5 * model.skin;
    let way = |i: usize| {
        let v = particles.velocity[i].vector();
        model.dt * f64::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])
    };
    let too_far = (0..particles.owned).filter(|i| way(*i) > allowed);
    let Some(i) = too_far.min_by_key(|i| particles.id[*i]) else { return not_finite(particles) };
    Violation {
        limit: Limit::Travel { found: way(i), allowed },
        id: particles.id[i],
        other: None,
        position: particles.position[i].vector(),
    }
}
