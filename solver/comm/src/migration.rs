//! Particles that change owner.

use bytemuck::Pod;
use dem_core::{FullRecord, Particles, StateRecord};
use dem_decomp::Tree;

use crate::comm::Comm;
use crate::communicator::{CommError, Kind, Outgoing};

/// Whether particles take their forces and torques along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// They do: between two steps, where the next kick needs them.
    Move,
    /// They do not: within a step, before forces are computed anew.
    Stay,
}

/// Sends every particle that lies in another rank's box there, and takes in those that came. Ghosts are forgotten.
/// Returns how many left.
///
/// `partners` are the ranks that this one may exchange particles with, sorted, the same list seen from both ends: its
/// neighbours as long as the boxes stay, all other ranks when the boxes changed.
///
/// # Errors
/// [`CommError::Strayed`] when a particle belongs to a rank that is no partner, and those of the communicator.
pub fn migrate(
    comm: &mut Comm,
    particles: &mut Particles,
    tree: &Tree,
    rank_of_subdomain: &[u32],
    partners: &[u32],
    loads: Loads,
) -> Result<u64, CommError> {
    particles.clear_ghosts();
    let owner = |position| rank_of_subdomain[tree.owner(position) as usize];
    match loads {
        Loads::Stay => send::<FullRecord>(
            comm,
            particles,
            owner,
            partners,
            |particles, index| particles.full_record(index),
            |particles, record| particles.push_owned(record),
        ),
        Loads::Move => send::<StateRecord>(
            comm,
            particles,
            owner,
            partners,
            |particles, index| particles.state_record(index),
            |particles, record| particles.push_state(record),
        ),
    }
}

fn send<R: Pod>(
    comm: &mut Comm,
    particles: &mut Particles,
    owner: impl Fn([f64; 3]) -> u32,
    partners: &[u32],
    take: impl Fn(&Particles, usize) -> R,
    put: impl Fn(&mut Particles, &R),
) -> Result<u64, CommError> {
    let me = comm.rank();
    let mut leaving: Vec<Vec<R>> = vec![Vec::new(); partners.len()];
    // From the end, so that the particle that fills a gap has been looked at.
    for index in (0..particles.owned()).rev() {
        let position = particles.positions()[index].vector();
        let to = owner(position);
        if to == me {
            continue;
        }
        let Ok(partner) = partners.binary_search(&to) else {
            let [x, y, z] = position;
            return Err(CommError::Strayed { id: particles.ids()[index], x, y, z, from: me, to });
        };
        leaving[partner].push(take(particles, index));
        particles.swap_remove(index);
    }
    let sends: Vec<Outgoing<'_>> =
        partners.iter().zip(&leaving).map(|(&to, records)| (to, bytemuck::cast_slice(records))).collect();
    for bytes in comm.exchange_sized(Kind::Migration, &sends, partners)? {
        for record in bytes.chunks_exact(size_of::<R>()) {
            put(particles, &bytemuck::pod_read_unaligned(record));
        }
    }
    Ok(leaving.iter().map(|records| records.len() as u64).sum())
}
