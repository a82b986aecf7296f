//! The time loop of one rank.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytemuck::{Pod, Zeroable};
use dem_comm::{Comm, Halo, LEVELS, Loads, migrate};
use dem_core::{
    Contacts, NeighbourList, Particles, StateRecord, Violation, contacts, kick, kick_drift, kick_kick_drift,
    state_hash,
};
use dem_page::{State, store_f64};

use crate::args::Restart;
use crate::balance::Balancer;
use crate::checkpoint::{self, Histogram, Manifest};
use crate::clock;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::files;
use crate::frames::{self, Frames};
use crate::job::Job;
use crate::layout::{Layout, Places};
use crate::phases::Phases;
use crate::setup::Setup;
use crate::stop;
use crate::summary::{self, BetweenRanks, QuantaUsed, RankFigures, Summary};

/// Steps between the states that are kept in memory for a checkpoint when a guard stops the run.
const KEEP_EVERY: u64 = 100;

/// How a run ended without a failure of the machinery.
#[derive(Debug)]
pub enum End {
    /// It reached its last step.
    Done,
    /// It was asked to stop, and wrote a checkpoint first.
    Stopped {
        /// Step of the checkpoint.
        step: u64,
    },
    /// A guard on some rank stopped it.
    Violated {
        /// What this rank knows of it.
        message: String,
    },
}

/// Totals of this rank over the attempt.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    rebuilds: u64,
    rebalances: u64,
    migrated: u64,
    crossings: [u64; 6],
    opened: u64,
    closed: u64,
}

/// What the ranks agree on in every step, in one reduction.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Agreement {
    /// Non-zero: some rank's neighbour list is stale.
    stale: u64,
    /// Non-zero: some rank was asked to stop.
    stop: u64,
    /// Lowest rank on which a guard fired; `u64::MAX` if none.
    violating: u64,
    /// Particles of all ranks.
    particles: u64,
}

/// This rank's part of the state after a step.
struct Snapshot {
    step: u64,
    hash: u128,
    records: Vec<StateRecord>,
}

/// One rank's simulation.
pub struct Simulation<'a> {
    job: Job,
    setup: Setup,
    comm: &'a mut Comm,
    page: &'a Counters,

    places: Places,
    layout: Layout,
    /// The boxes changed, so particles may have to go anywhere.
    relocated: bool,
    particles: Particles,
    list: NeighbourList,
    halo: Halo,

    step: u64,
    start_step: u64,
    started_from: Option<PathBuf>,
    /// The list is rebuilt in this step.
    stale: bool,
    /// All ranks end after this step.
    stopping: bool,
    /// The second half of the last step's kick is still to come.
    kick_pending: bool,
    /// The first violation on this rank, and its step.
    violation: Option<(u64, Violation)>,
    /// State to write when a guard fires.
    good: Option<Snapshot>,

    balancer: Balancer,
    phases: Phases,
    totals: Totals,
    touching: Contacts,
    start_ghosts: Option<[u64; LEVELS]>,
    frames: Frames,
    started_at: f64,
    started_at_cpu: f64,
}

impl<'a> Simulation<'a> {
    /// Particles from the start or from a checkpoint, on the ranks that own them, ready for the first step. All ranks
    /// call it together.
    ///
    /// # Errors
    /// Wrong input, unusable checkpoints, failed communication.
    pub fn start(job: Job, comm: &'a mut Comm, page: &'a Arc<Counters>) -> Result<Self, Failure> {
        let setup = Setup::new(&job)?;
        let began = clock::wall();
        let mut particles = Particles::new();
        let restart = find_checkpoint(&job, &setup, comm, &mut particles)?;
        let start_step = restart.as_ref().map_or(0, |(_, manifest)| manifest.step);
        if restart.is_none() {
            setup.generate(comm.rank(), comm.size(), &mut particles);
        }

        let places = Places::new(job.plan.as_ref(), comm.node_of_rank());
        let points = points_of(&particles);
        let layout = Layout::initial(comm, &setup.space, &places, job.plan.as_ref(), &points)?;
        let everybody = others(comm);
        migrate(comm, &mut particles, &layout.tree, &layout.rank_of_subdomain, &everybody, Loads::Move)?;
        let mut cost = [((clock::wall() - began) * 1e9) as u64];
        comm.max(&mut cost)?;

        let balance = &job.simulation.balance;
        let balancer = Balancer::new(balance.every_steps.unsigned_abs().max(1), balance.threshold, cost[0]);
        page.end_step.store(setup.end_step, Ordering::Relaxed);
        page.start_step.store(start_step, Ordering::Relaxed);
        page.step.store(start_step, Ordering::Relaxed);
        let mut simulation = Self {
            places,
            layout,
            relocated: false,
            particles,
            list: NeighbourList::new(),
            halo: Halo::default(),
            step: start_step,
            start_step,
            started_from: restart.map(|(folder, _)| folder),
            stale: true,
            stopping: false,
            kick_pending: false,
            violation: None,
            good: None,
            balancer,
            phases: Phases::default(),
            totals: Totals::default(),
            touching: Contacts::default(),
            start_ghosts: None,
            frames: Frames::new(&job),
            started_at: clock::wall(),
            started_at_cpu: clock::thread_cpu(),
            job,
            setup,
            comm,
            page,
        };
        simulation.announce();
        if start_step == 0 {
            simulation.perturb();
            // Forces at the start; those of a checkpoint came with it.
            simulation.exchange()?;
            simulation.neighbours(0.0);
            simulation.contacts();
        }
        Ok(simulation)
    }

    /// Steps to the end.
    ///
    /// # Errors
    /// Failed communication or writes, a lost lease or particle.
    pub fn run(mut self) -> Result<End, Failure> {
        self.page.state.store(State::Running as u64, Ordering::Release);
        self.started_at = clock::wall();
        self.started_at_cpu = clock::thread_cpu();
        self.keep();
        let mut end = self.settle()?;
        if end.is_none() && self.step >= self.setup.end_step {
            end = self.outputs()?;
        } else if end.is_none() && self.step == 0 && self.frames.due(0) {
            self.frames.write(self.page, self.comm, &self.setup.space, &self.particles, (0, 0.0), false)?;
        }
        while end.is_none() {
            end = self.step()?;
        }
        match end {
            Some(end) => Ok(end),
            None => Ok(End::Done),
        }
    }

    fn step(&mut self) -> Result<Option<End>, Failure> {
        if self.job.panic == Some((self.comm.rank(), self.step + 1)) {
            panic!("as asked by --panic");
        }
        self.integrate();
        if let Some(end) = self.agree()? {
            return Ok(Some(end));
        }
        self.exchange()?;
        self.neighbours(self.setup.model.dt);
        self.contacts();
        self.complete();
        self.balance()?;
        self.outputs()
    }

    /// The first half of the kick and the drift, with the last step's second half if nobody had to see it.
    fn integrate(&mut self) {
        let (model, particles, list) = (&self.setup.model, &mut self.particles, &mut self.list);
        let advance = if self.kick_pending { kick_kick_drift } else { kick_drift };
        self.kick_pending = false;
        let drift = self.phases.compute(|| advance(model, particles, list));
        match drift {
            Ok(drift) => {
                self.totals.crossings.iter_mut().zip(drift.crossings).for_each(|(total, new)| *total += new);
            }
            Err(violation) => self.note(self.step + 1, violation),
        }
    }

    /// One reduction decides for all ranks: rebuild, stop after this step, or end because of a guard.
    fn agree(&mut self) -> Result<Option<End>, Failure> {
        files::check_lease(self.page)?;
        let phase = self.job.phase.is_some_and(|k| (self.step + 1).is_multiple_of(k));
        let (model, particles, list) = (&self.setup.model, &self.particles, &mut self.list);
        let stale = self.relocated || phase || self.phases.compute(|| list.is_stale(model, particles));
        let stop = stop::requested() || self.page.stop_request.load(Ordering::Relaxed) != 0;
        let agreed = self.reduce(stale, stop)?;
        if agreed.violating != u64::MAX {
            return self.violated(agreed.violating).map(Some);
        }
        if agreed.particles != self.setup.particles {
            return Err(Failure::Guard(format!(
                "step {}: {} particles of {} are left",
                self.step + 1,
                agreed.particles,
                self.setup.particles
            )));
        }
        self.stale = agreed.stale != 0;
        self.stopping = agreed.stop != 0;
        Ok(None)
    }

    fn reduce(&mut self, stale: bool, stop: bool) -> Result<Agreement, Failure> {
        let violating = if self.violation.is_some() { self.comm.rank().into() } else { u64::MAX };
        let particles = self.particles.owned() as u64;
        let mut words = [Agreement { stale: stale.into(), stop: stop.into(), violating, particles }];
        let comm = &mut *self.comm;
        self.phases.communicate(|| {
            comm.all_reduce(&mut words, |a, b| Agreement {
                stale: a.stale | b.stale,
                stop: a.stop | b.stop,
                violating: a.violating.min(b.violating),
                particles: a.particles + b.particles,
            })
        })?;
        Ok(words[0])
    }

    /// Ghosts: updated, or, when the list is stale, made anew after particles went to their owners.
    fn exchange(&mut self) -> Result<(), Failure> {
        if self.job.simulation.profile {
            let comm = &mut *self.comm;
            self.phases.wait_before(|| comm.barrier())?;
        }
        if self.stale {
            self.exchange_anew()?;
        } else {
            let (comm, particles, halo) = (&mut *self.comm, &mut self.particles, &mut self.halo);
            let model = &self.setup.model;
            self.phases.communicate(|| halo.update(comm, particles, model.dt, &model.periodic))?;
        }
        if self.job.simulation.profile {
            let comm = &mut *self.comm;
            self.phases.wait_after(|| comm.barrier())?;
        }
        Ok(())
    }

    fn exchange_anew(&mut self) -> Result<(), Failure> {
        let began = clock::wall();
        let everybody;
        let partners = if self.relocated {
            everybody = others(self.comm);
            &everybody
        } else {
            &self.layout.partners
        };
        let (comm, particles, layout) = (&mut *self.comm, &mut self.particles, &self.layout);
        let tree = &layout.tree;
        let homes = &layout.rank_of_subdomain;
        self.totals.migrated +=
            self.phases.communicate(|| migrate(comm, particles, tree, homes, partners, Loads::Stay))?;
        if self.relocated {
            self.relocated = false;
            self.balancer.add_cost(comm, clock::wall() - began)?;
        }

        let (model, list, space) = (&self.setup.model, &mut self.list, &self.setup.space);
        let rank = comm.rank();
        self.halo = self.phases.compute(|| {
            list.sort(model, particles);
            let periodicity = space.periodicity();
            Halo::plan(rank, &layout.partners, particles, tree, homes, space.thickness, &periodicity)
        })?;
        let halo = &mut self.halo;
        self.phases.communicate(|| halo.create(comm, particles))?;
        if self.start_ghosts.is_none() {
            self.start_ghosts = Some(self.halo.received(self.comm));
        }
        Ok(())
    }

    /// The neighbour list, when it is stale. `last_step` \[s\] is how far positions have moved on since contacts were
    /// last looked at.
    fn neighbours(&mut self, last_step: f64) {
        if !self.stale {
            return;
        }
        let (model, particles, list) = (&self.setup.model, &self.particles, &mut self.list);
        self.phases.compute(|| list.build(model, particles, last_step));
        self.totals.rebuilds += 1;
        self.stale = false;
    }

    /// Forces and torques of all contacts.
    fn contacts(&mut self) {
        let (model, particles, list) = (&self.setup.model, &mut self.particles, &mut self.list);
        match self.phases.compute(|| contacts(model, particles, list)) {
            Ok(found) => {
                self.totals.opened += found.opened;
                self.totals.closed += found.closed;
                self.touching = found;
            }
            Err(violation) => self.note(self.step + 1, violation),
        }
    }

    /// Counts the step; the second half of the kick now if somebody looks at the state, else with the next step.
    fn complete(&mut self) {
        self.step += 1;
        self.kick_pending = !self.is_looked_at();
        if !self.kick_pending {
            let (model, particles) = (&self.setup.model, &mut self.particles);
            if let Err(violation) = self.phases.compute(|| kick(model, particles)) {
                self.note(self.step, violation);
            }
        }
        self.publish();
    }

    fn is_looked_at(&self) -> bool {
        self.stopping
            || self.step >= self.setup.end_step
            || self.keeps_now()
            || self.checkpoints_now()
            || self.frames.due(self.step)
    }

    fn keeps_now(&self) -> bool {
        self.job.checkpoints.is_some() && self.step.is_multiple_of(KEEP_EVERY)
    }

    fn checkpoints_now(&self) -> bool {
        let every = self.setup.checkpoint_every;
        self.job.checkpoints.is_some() && every > 0 && self.step.is_multiple_of(every)
    }

    /// New boxes, when a look is due and says that they pay.
    fn balance(&mut self) -> Result<(), Failure> {
        let enabled = self.job.simulation.balance.enabled && self.comm.size() > 1;
        if !enabled || self.step == self.setup.end_step || !self.balancer.due(self.step) {
            return Ok(());
        }
        let began = clock::wall();
        let owned = self.particles.owned();
        let Some(weight) = self.balancer.look(self.comm, self.phases.calc, owned)? else { return Ok(()) };
        let points = points_of(&self.particles);
        let weights = vec![weight; owned];
        let layout = self.layout.rebalanced(self.comm, &self.setup.space, &self.places, &points, &weights)?;
        if let Some(layout) = layout {
            self.layout = layout;
            self.relocated = true;
            self.totals.rebalances += 1;
        }
        let spent = clock::wall() - began;
        self.phases.comm += spent;
        self.balancer.set_cost(self.comm, spent)
    }

    /// Whatever is due at this step: checkpoint, frames, at the end the summary.
    fn outputs(&mut self) -> Result<Option<End>, Failure> {
        if !self.is_looked_at() {
            return Ok(None);
        }
        if let Some(end) = self.settle()? {
            return Ok(Some(end));
        }
        if self.keeps_now() {
            self.keep();
        }
        let done = self.step >= self.setup.end_step;
        if self.checkpoints_now() || (self.stopping && !done) {
            let state = self.snapshot();
            self.write_checkpoint(&state)?;
        }
        if self.frames.due(self.step) || done {
            let when = (self.step, self.step as f64 * self.setup.model.dt);
            self.frames.write(self.page, self.comm, &self.setup.space, &self.particles, when, done)?;
        }
        if done {
            self.write_summary()?;
            return Ok(Some(End::Done));
        }
        Ok(self.stopping.then_some(End::Stopped { step: self.step }))
    }

    /// Ends all ranks if a guard fired on any of them, before anything is written that others would trust.
    fn settle(&mut self) -> Result<Option<End>, Failure> {
        match self.reduce(false, false)?.violating {
            u64::MAX => Ok(None),
            rank => self.violated(rank).map(Some),
        }
    }

    fn note(&mut self, step: u64, violation: Violation) {
        self.violation.get_or_insert((step, violation));
    }

    /// A guard fired on `rank`: the last good state becomes a checkpoint and all ranks end.
    fn violated(&mut self, rank: u64) -> Result<End, Failure> {
        let message = match &self.violation {
            Some((step, violation)) => format!("rank {}, step {step}: {violation}", self.comm.rank()),
            None => format!("rank {}: stopped by a guard on rank {rank}", self.comm.rank()),
        };
        if let Some(good) = self.good.take() {
            self.write_checkpoint(&good)?;
        }
        Ok(End::Violated { message })
    }

    /// Keeps the state for a checkpoint in case a guard fires.
    fn keep(&mut self) {
        if self.job.checkpoints.is_some() && self.violation.is_none() {
            self.good = Some(self.snapshot());
        }
    }

    fn snapshot(&self) -> Snapshot {
        let records = (0..self.particles.owned()).map(|i| self.particles.state_record(i)).collect();
        Snapshot { step: self.step, hash: state_hash(&self.particles), records }
    }

    fn write_checkpoint(&mut self, state: &Snapshot) -> Result<(), Failure> {
        let step = state.step;
        let Some(root) = self.job.checkpoints.clone() else {
            if self.comm.rank() == 0 {
                tracing::warn!(step, "no checkpoint is written: --checkpoints names no folder");
            }
            return Ok(());
        };
        let points: Vec<[f64; 3]> =
            state.records.iter().map(|r| [0, 1, 2].map(|k| r.particle.position[k])).collect();
        let Setup { model, space, fixed, .. } = &self.setup;
        let mut histogram = Histogram::count(space.region.min, space.region.max, &points);
        self.comm.sum(&mut histogram.particles)?;
        let ghost_graph = self.layout.ghost_graph(self.comm, space, &points)?;
        let mut hash = [state.hash];
        self.comm.all_reduce(&mut hash, u128::wrapping_add)?;
        let (format, version) = Manifest::format();
        let about = Manifest {
            format,
            version,
            attempt: self.job.attempt,
            step,
            dt: model.dt,
            force_quantum: model.quanta.force,
            torque_quantum: model.quanta.torque,
            simulation: fixed.to_hex().to_string(),
            particles: self.setup.particles,
            state_hash: hex(hash[0]),
            ranks: self.comm.size(),
            tree: self.layout.tree.clone(),
            subdomain_of_rank: self.layout.subdomain_of_rank.clone(),
            ghost_graph,
            histogram,
            chunks: Vec::new(),
        };
        checkpoint::write(&root, self.page, self.comm, about, fixed, &state.records)?;
        self.page.checkpoint_step.store(step, Ordering::Relaxed);
        if self.comm.rank() == 0 {
            checkpoint::retain(&root, self.job.attempt, self.setup.checkpoint_keep);
            tracing::info!(step, "checkpoint written");
        }
        Ok(())
    }

    /// Brings the counter page up to date.
    fn publish(&self) {
        let page = self.page;
        let set = |word: &std::sync::atomic::AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        set(&page.step, self.step);
        set(&page.particles, self.particles.owned() as u64);
        set(&page.ghosts, self.particles.ghosts() as u64);
        set(&page.contacts, self.touching.touching + self.touching.walls);
        set(&page.rebuilds, self.totals.rebuilds);
        set(&page.migrated, self.totals.migrated);
        set(&page.rebalances, self.totals.rebalances);
        let traffic = self.comm.traffic();
        for level in 0..LEVELS {
            set(&page.start_ghosts_received[level], self.start_ghosts.map_or(0, |ghosts| ghosts[level]));
            set(&page.ghosts_received[level], traffic.ghosts_received[level]);
            set(&page.bytes_received[level], traffic.bytes_received[level]);
            set(&page.messages_received[level], traffic.messages_received[level]);
            set(&page.bytes_sent[level], traffic.bytes_sent[level]);
        }
        store_f64(&page.calc_seconds, self.phases.calc);
        store_f64(&page.calc_wall_seconds, self.phases.calc_wall);
        store_f64(&page.comm_seconds, self.phases.comm);
        store_f64(&page.wait1_seconds, self.phases.wait1);
        store_f64(&page.wait2_seconds, self.phases.wait2);
        store_f64(&page.wall_seconds, clock::wall() - self.started_at);
    }

    /// What rank 0 says at the start.
    fn announce(&self) {
        if self.comm.rank() != 0 {
            return;
        }
        let (model, setup) = (&self.setup.model, &self.setup);
        if let Some(folder) = &self.started_from {
            tracing::info!(checkpoint = %folder.display(), step = self.start_step, "continuing");
        }
        tracing::info!(
            particles = setup.particles,
            ranks = self.comm.size(),
            steps = setup.end_step,
            dt = model.dt,
            force_quantum = model.quanta.force,
            torque_quantum = model.quanta.torque,
            kernel = model.kernel.name(),
            "starting"
        );
        for expected in setup.expected_restitution(&self.job.simulation) {
            let [a, b] = &expected.materials;
            tracing::info!(
                "expected restitution of {a} and {b}: {:.6} at {} m/s",
                expected.restitution,
                expected.speed
            );
        }
    }

    /// Moves one particle by the last bit of x, to show that the hash sees it.
    fn perturb(&mut self) {
        let Some(id) = self.job.perturb else { return };
        let found = self.particles.ids()[..self.particles.owned()].iter().position(|i| *i == id);
        if let Some(index) = found {
            let x = &mut self.particles.position_mut(index).0[0];
            *x = x.next_up();
        }
    }

    fn figures(&self) -> RankFigures {
        let (rank, traffic) = (self.comm.rank(), self.comm.traffic());
        RankFigures {
            rank,
            node: self.comm.node_of_rank()[rank as usize],
            host: crate::run::host_name(),
            subdomain: self.layout.subdomain_of_rank[rank as usize],
            particles: self.particles.owned() as u64,
            ghosts: self.particles.ghosts() as u64,
            contacts: self.touching.touching + self.touching.walls,
            migrated: self.totals.migrated,
            cpu_seconds: clock::thread_cpu() - self.started_at_cpu,
            calc_seconds: self.phases.calc,
            calc_wall_seconds: self.phases.calc_wall,
            comm_seconds: self.phases.comm,
            wait1_seconds: self.phases.wait1,
            wait2_seconds: self.phases.wait2,
            start_ghosts_received: self.start_ghosts.unwrap_or_default(),
            ghosts_received: traffic.ghosts_received,
            bytes_received: traffic.bytes_received,
            bytes_sent: traffic.bytes_sent,
            messages_received: traffic.messages_received,
            messages_sent: traffic.messages_sent,
        }
    }

    /// Hash of all ranks' particles: a wrapping sum, so the order and the ranks do not matter.
    fn hash(&mut self) -> Result<u128, Failure> {
        let mut sum = [state_hash(&self.particles)];
        self.comm.all_reduce(&mut sum, u128::wrapping_add)?;
        Ok(sum[0])
    }

    fn write_summary(&mut self) -> Result<(), Failure> {
        let wall = clock::wall() - self.started_at;
        let hash = self.hash()?;
        let (totals, touching) = (self.totals, self.touching);
        let mut sums = [totals.opened, totals.closed, touching.touching + touching.walls];
        self.comm.sum(&mut sums)?;
        let mut crossings = totals.crossings;
        self.comm.sum(&mut crossings)?;
        // Figures are taken before they travel themselves.
        let own = serde_json::to_vec(&self.figures())
            .map_err(|e| Failure::write(Path::new("summary"), e.into()))?;
        let Some(parts) = self.comm.gather(own)? else { return Ok(()) };
        let per_rank: Result<Vec<RankFigures>, _> =
            parts.iter().map(|part| serde_json::from_slice(part)).collect();
        let per_rank = per_rank.map_err(|e| Failure::write(Path::new("summary"), e.into()))?;
        let model = &self.setup.model;
        let steps = self.step - self.start_step;
        let summary = Summary {
            version: summary::VERSION,
            attempt: self.job.attempt,
            ranks: self.comm.size(),
            particles: self.setup.particles,
            start_step: self.start_step,
            started_from: self.started_from.as_ref().map(|path| path.display().to_string()),
            end_step: self.step,
            dt: model.dt,
            state_hash: hex(hash),
            wall_seconds: wall,
            particle_steps_per_second: self.setup.particles as f64 * steps as f64 / wall,
            rebuilds: totals.rebuilds,
            migrations: per_rank.iter().map(|rank| rank.migrated).sum(),
            rebalances: totals.rebalances,
            contacts: sums[2],
            contacts_opened: sums[0],
            contacts_closed: sums[1],
            face_crossings: crossings.iter().sum(),
            crossings_of_face: crossings,
            start_ghosts: BetweenRanks::total(per_rank.iter().map(|rank| rank.start_ghosts_received)),
            bytes: BetweenRanks::total(per_rank.iter().map(|rank| rank.bytes_sent)),
            messages: BetweenRanks::total(per_rank.iter().map(|rank| rank.messages_sent)),
            mapping: self.layout.mapping.clone(),
            lambda: dem_page::imbalance(per_rank.iter().map(|rank| rank.calc_seconds)),
            quanta: QuantaUsed { force: model.quanta.force, torque: model.quanta.torque },
            kernel: model.kernel.name().into(),
            expected_restitution: self.setup.expected_restitution(&self.job.simulation),
            per_rank,
        };
        let folder = frames::folder(&self.job);
        write_json(self.page, &folder.join("ranks.json"), &summary.per_rank)?;
        write_json(self.page, &folder.join("summary.json"), &summary)?;
        tracing::info!(
            hash = summary.state_hash,
            steps,
            seconds = format!("{wall:.3}"),
            particle_steps_per_second = format!("{:.4e}", summary.particle_steps_per_second),
            rebuilds = summary.rebuilds,
            migrations = summary.migrations,
            rebalances = summary.rebalances,
            "done"
        );
        Ok(())
    }
}

fn write_json(page: &Counters, path: &Path, value: &impl serde::Serialize) -> Result<(), Failure> {
    files::commit(page, path, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    })
}

/// A state hash as it is printed.
fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

fn points_of(particles: &Particles) -> Vec<[f64; 3]> {
    particles.positions()[..particles.owned()].iter().map(dem_core::Record::vector).collect()
}

fn others(comm: &Comm) -> Vec<u32> {
    (0..comm.size()).filter(|rank| *rank != comm.rank()).collect()
}

/// Loads the checkpoint to go on from, if any, each rank every so many-th chunk. Unusable ones are named and the next
/// older one is tried.
fn find_checkpoint(
    job: &Job,
    setup: &Setup,
    comm: &mut Comm,
    particles: &mut Particles,
) -> Result<Option<(PathBuf, Manifest)>, Failure> {
    let candidates = match (&job.restart, &job.checkpoints) {
        (Restart::Auto, Some(root)) if comm.rank() == 0 => checkpoint::candidates(root, job.attempt),
        _ => Vec::new(),
    };
    let (own, refused) = load_first(candidates, setup, comm, particles)?;
    if let Some(foreign) = refused.iter().find(|damage| matches!(damage, checkpoint::Damage::Foreign { .. }))
    {
        return Err(Failure::Unreadable(foreign.to_string()));
    }
    let Some(start) = job.start_from.as_ref().filter(|_| own.is_none()) else { return Ok(own) };
    let candidates = if comm.rank() == 0 { checkpoint::candidates_below(start) } else { Vec::new() };
    let (found, refused) = load_first(candidates, setup, comm, particles)?;
    let unusable = || {
        let why = refused.first().map(ToString::to_string).unwrap_or_else(|| {
            "no checkpoint there; expected a folder with manifest.json, or with attempt-N/step-K folders"
                .to_owned()
        });
        Failure::Unreadable(format!("--start-from {}: {why}", start.display()))
    };
    found.map(Some).ok_or_else(unusable)
}

/// A checkpoint whose particles were taken, and its folder.
type Loaded = (PathBuf, Manifest);

/// Loads the first usable one of rank 0's `candidates`, if there is one, and tells what is wrong with those before it.
fn load_first(
    candidates: Vec<PathBuf>,
    setup: &Setup,
    comm: &mut Comm,
    particles: &mut Particles,
) -> Result<(Option<Loaded>, Vec<checkpoint::Damage>), Failure> {
    let internal = |e: serde_json::Error| Failure::Unreadable(format!("checkpoints: {e}"));
    let candidates = comm.broadcast(serde_json::to_vec(&candidates).map_err(internal)?)?;
    let candidates: Vec<PathBuf> = serde_json::from_slice(&candidates).map_err(internal)?;
    let mut refused = Vec::new();
    for folder in candidates {
        particles.clear();
        let own = read_share(&folder, &setup.fixed.to_hex(), comm.rank(), comm.size(), particles);
        let mut bad = [u64::from(own.is_err())];
        comm.max(&mut bad)?;
        let mut hash = [state_hash(particles)];
        comm.all_reduce(&mut hash, u128::wrapping_add)?;
        match own {
            Ok(manifest) if bad[0] == 0 && hex(hash[0]) == manifest.state_hash => {
                return Ok((Some((folder, manifest)), refused));
            }
            Ok(_) => refused.push(checkpoint::Damage::Elsewhere(folder.display().to_string())),
            Err(damage) => {
                tracing::warn!(rank = comm.rank(), "checkpoint not used: {damage}");
                refused.push(damage);
            }
        }
    }
    particles.clear();
    Ok((None, refused))
}

fn read_share(
    folder: &Path,
    simulation: &str,
    rank: u32,
    ranks: u32,
    particles: &mut Particles,
) -> Result<Manifest, checkpoint::Damage> {
    let manifest = checkpoint::read_manifest(folder, simulation)?;
    for chunk in manifest.chunks.iter().skip(rank as usize).step_by(ranks as usize) {
        for record in checkpoint::read_chunk(folder, &manifest, chunk)? {
            particles.push_state(&record);
        }
    }
    Ok(manifest)
}
