//! Ghosts: who sends which particles to whom with which periodic image, as data, and its execution.
//!
//! # No ghost can be missing
//!
//! Claim: from one rebuild to the next, every pair that can touch is seen by the owner of each of its particles.
//!
//! 1. *Range.* Spheres i and j touch only if their centres are at most `Ri + Rj <= 2 Rmax` apart. Contacts are only
//!    evaluated while no centre has moved more than half the skin since the last rebuild: otherwise there is a rebuild
//!    first. So a pair that touches was at most `2 Rmax + skin <= t` apart at the rebuild, `t` being the ghost thickness.
//! 2. *Ownership.* At a rebuild every particle is sent to the rank whose box holds its centre. Boxes tile space: the
//!    outer ones reach to infinity, or to the domain's face on periodic axes, where every coordinate lies inside. So
//!    there is exactly one owner, found by the same comparisons on every rank ([`Tree::owner`]).
//! 3. *Completeness.* Let a image of j be within `t` of i's centre, which lies in box B. Then on each axis alone j's
//!    image is within `t` of an interval that B spans, so it lies in B grown by `t` on every side, corners included. This
//!    is what [`Tree::touching`] tests, for all images and without regard to distance along other axes, so j's owner
//!    sends that image to B's owner. (That test rounds where a distance would, too: it may miss a pair whose gap is the
//!    whole skin but for the last bit. Such a pair comes into contact by a last bit at most, where Hertz's force is below
//!    any quantum.)
//! 4. *Partners.* A rank talks to those whose boxes come within `t` of its own, over periodic faces too
//!    ([`neighbours`]). By 3 no other rank can need its particles. At the next rebuild
//!    a particle has moved by at most half the skin and one step, which a guard keeps below another half, so its new owner
//!    is among them as well; [`crate::migrate`] checks that. Both ends compute the same
//!    list, so every message that is sent is awaited.
//! 5. *Updates.* Between rebuilds ghosts keep their places; sender and receiver use the lists of the rebuild, whose
//!    lengths both know. A ghost gets its owner's velocity and spin and advances its owner's coordinate by its owner's
//!    arithmetic, so it stays equal to the last bit.

use dem_core::{FullRecord, MOTION_DOUBLES, Particles, Periodic};
use dem_decomp::{Box3, Periodicity, Tree};

use crate::comm::Comm;
use crate::communicator::{CommError, Kind, Outgoing};

/// The exchange plan between two rebuilds, and its buffers.
#[derive(Debug, Default)]
pub struct Halo {
    partners: Vec<Partner>,
}

/// What goes to and comes from one rank; the own rank stands for ghosts that are images of own particles.
#[derive(Debug, Default)]
struct Partner {
    rank: u32,
    /// Places of the particles that the partner needs, and as which image, in its order.
    sends: Vec<u32>,
    images: Vec<[i8; 3]>,
    /// Place of the first ghost that came from the partner, and how many did.
    first: usize,
    receives: usize,
    outgoing: Vec<f64>,
    incoming: Vec<f64>,
}

/// The ranks that each rank may exchange ghosts and particles with: those whose boxes come within `thickness` \[m\] of
/// its own, directly or over a periodic face. Symmetric, sorted, without the rank itself.
pub fn neighbours(
    tree: &Tree,
    rank_of_subdomain: &[u32],
    thickness: f64,
    domain: Box3,
    periodic: [bool; 3],
) -> Vec<Vec<u32>> {
    let region = tree.region();
    let mut boxes = tree.boxes();
    for bounds in &mut boxes {
        for (a, &periodic) in periodic.iter().enumerate() {
            // Outer boxes reach to the domain's face or to infinity, see 2. above.
            if bounds.min[a] <= region.min[a] {
                bounds.min[a] = if periodic { domain.min[a] } else { f64::NEG_INFINITY };
            }
            if bounds.max[a] >= region.max[a] {
                bounds.max[a] = if periodic { domain.max[a] } else { f64::INFINITY };
            }
        }
    }
    // A little more than the thickness, so that rounding in the tree's tests cannot name a rank that is missing here.
    let reach = thickness * (1.0 + 1e-6);
    let near = |p: &Box3, q: &Box3, a: usize| {
        let gap = |shift: f64| (p.min[a] + shift).max(q.min[a]) - (p.max[a] + shift).min(q.max[a]);
        let period = domain.length(a);
        gap(0.0) <= reach || (periodic[a] && (gap(period) <= reach || gap(-period) <= reach))
    };
    let mut of_rank = vec![Vec::new(); boxes.len()];
    for (i, p) in boxes.iter().enumerate() {
        for (j, q) in boxes.iter().enumerate().skip(i + 1) {
            if (0..3).all(|a| near(p, q, a)) {
                let (i, j) = (rank_of_subdomain[i], rank_of_subdomain[j]);
                of_rank[i as usize].push(j);
                of_rank[j as usize].push(i);
            }
        }
    }
    for list in &mut of_rank {
        list.sort_unstable();
    }
    of_rank
}

impl Halo {
    /// Decides which owned particles go where: to every rank whose box, grown by `thickness` \[m\], holds them.
    /// `partners` are this rank's [`neighbours`]. Any ghosts of `particles` are left as they are.
    ///
    /// # Errors
    /// [`CommError::Strayed`] when a particle is needed by a rank that is no partner.
    pub fn plan(
        rank: u32,
        partners: &[u32],
        particles: &Particles,
        tree: &Tree,
        rank_of_subdomain: &[u32],
        thickness: f64,
        periodicity: &Periodicity,
    ) -> Result<Self, CommError> {
        let mut halo =
            Self { partners: partners.iter().map(|&rank| Partner { rank, ..Partner::default() }).collect() };
        if (0..3).any(|a| periodicity.is_periodic(a)) {
            halo.partners.push(Partner { rank, ..Partner::default() });
            halo.partners.sort_by_key(|p| p.rank);
        }
        let mut place = vec![usize::MAX; rank_of_subdomain.len()];
        for (i, partner) in halo.partners.iter().enumerate() {
            place[partner.rank as usize] = i;
        }
        let mut strayed = None;
        for (index, position) in particles.positions()[..particles.owned()].iter().enumerate() {
            tree.touching(position.vector(), thickness, periodicity, |subdomain, image| {
                let to = rank_of_subdomain[subdomain as usize];
                if to == rank && image == [0; 3] {
                    return;
                }
                match halo.partners.get_mut(place[to as usize]) {
                    Some(partner) => {
                        partner.sends.push(index as u32);
                        partner.images.push(image);
                    }
                    None => strayed = Some((index, to)),
                }
            });
        }
        if let Some((index, to)) = strayed {
            let [x, y, z] = particles.positions()[index].vector();
            return Err(CommError::Strayed { id: particles.ids()[index], x, y, z, from: rank, to });
        }
        Ok(halo)
    }

    /// Ghost records that come from other ranks per exchange, by locality level.
    pub fn received(&self, comm: &Comm) -> [u64; crate::LEVELS] {
        let mut levels = [0; crate::LEVELS];
        for partner in self.partners.iter().filter(|p| p.rank != comm.rank()) {
            levels[comm.level(partner.rank)] += partner.receives as u64;
        }
        levels
    }

    /// Makes all ghosts anew: one message of full records to each partner. Ghosts stand behind the owned particles, by
    /// rank of their owner and, of one owner, in its order.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn create(&mut self, comm: &mut Comm, particles: &mut Particles) -> Result<(), CommError> {
        particles.clear_ghosts();
        let me = comm.rank();
        let records: Vec<Vec<FullRecord>> = self
            .partners
            .iter()
            .map(|p| {
                p.sends.iter().zip(&p.images).map(|(&i, &k)| particles.ghost_record(i as usize, k)).collect()
            })
            .collect();
        let remote: Vec<u32> = self.partners.iter().map(|p| p.rank).filter(|&r| r != me).collect();
        let sends: Vec<Outgoing<'_>> = self
            .partners
            .iter()
            .zip(&records)
            .filter(|(p, _)| p.rank != me)
            .map(|(p, records)| (p.rank, bytemuck::cast_slice(records)))
            .collect();
        let mut received = comm.exchange_sized(Kind::NewGhosts, &sends, &remote)?.into_iter();
        for (partner, own) in self.partners.iter_mut().zip(&records) {
            partner.first = particles.len();
            if partner.rank == me {
                own.iter().for_each(|ghost| particles.push_ghost(ghost));
            } else if let Some(bytes) = received.next() {
                let size = size_of::<FullRecord>();
                if bytes.len() % size != 0 {
                    return Err(CommError::Length {
                        rank: me,
                        from: partner.rank,
                        kind: Kind::NewGhosts,
                        found: bytes.len(),
                        expected: bytes.len() / size * size,
                    });
                }
                for ghost in bytes.chunks_exact(size) {
                    particles.push_ghost(&bytemuck::pod_read_unaligned(ghost));
                }
            }
            partner.receives = particles.len() - partner.first;
            partner.outgoing.resize(partner.sends.len() * MOTION_DOUBLES, 0.0);
            partner.incoming.resize(partner.receives * MOTION_DOUBLES, 0.0);
        }
        self.count_ghosts(comm);
        Ok(())
    }

    /// Brings all ghosts to their owners' state after a drift of `dt` \[s\]: one message of velocities and spins to each
    /// partner that has ghosts from here.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn update(
        &mut self,
        comm: &mut Comm,
        particles: &mut Particles,
        dt: f64,
        periodic: &Periodic,
    ) -> Result<(), CommError> {
        let me = comm.rank();
        let mut sends: Vec<Outgoing<'_>> = Vec::with_capacity(self.partners.len());
        let mut receives: Vec<(u32, &mut [u8])> = Vec::with_capacity(self.partners.len());
        for partner in &mut self.partners {
            particles.pack_motion(&partner.sends, &mut partner.outgoing);
            if partner.rank == me {
                partner.incoming.copy_from_slice(&partner.outgoing);
                continue;
            }
            if !partner.outgoing.is_empty() {
                sends.push((partner.rank, bytemuck::cast_slice(&partner.outgoing)));
            }
            if !partner.incoming.is_empty() {
                receives.push((partner.rank, bytemuck::cast_slice_mut(&mut partner.incoming)));
            }
        }
        comm.exchange(Kind::GhostUpdate, &sends, &mut receives)?;
        for partner in &self.partners {
            particles.unpack_motion(partner.first, &partner.incoming, dt, periodic);
        }
        self.count_ghosts(comm);
        Ok(())
    }

    fn count_ghosts(&self, comm: &mut Comm) {
        let received = self.received(comm);
        for (total, new) in comm.traffic_mut().ghosts_received.iter_mut().zip(received) {
            *total += new;
        }
    }
}
