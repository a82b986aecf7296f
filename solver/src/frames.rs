//! Results for people and viewers: which are due, and their files.

use std::path::PathBuf;

use dem_comm::Comm;
use dem_config::{Colour, Outputs};
use dem_core::{FullRecord, Particles};
use dem_page::Page;

use crate::failure::Failure;
use crate::files;
use crate::job::Job;
use crate::layout::Space;
use crate::output::picture::{ColourBy, Scene, picture, visible};
use crate::output::{Shown, dump, vtu};

/// Folder of an attempt's results.
pub fn folder(job: &Job) -> PathBuf {
    job.output.join(format!("attempt-{}", job.attempt))
}

/// The frames of a run: particle files of every rank with a file that joins them, dumps, and a picture at the end.
pub struct Frames {
    outputs: Outputs,
    folder: PathBuf,
    /// Times and names of the frames so far, for the collection.
    written: Vec<(f64, String)>,
}

impl Frames {
    /// The frames that the job asks for.
    pub fn new(job: &Job) -> Self {
        Self { outputs: job.simulation.outputs, folder: folder(job), written: Vec::new() }
    }

    /// Whether `step` has a frame; the last step always has.
    pub fn due(&self, step: u64) -> bool {
        let every = self.outputs.every_steps.unsigned_abs();
        every > 0 && step.is_multiple_of(every)
    }

    /// Writes what is due at a step; all ranks call it with their particles. `last` adds the picture.
    ///
    /// # Errors
    /// Failed writes and messages, an ended lease.
    pub fn write(
        &mut self,
        page: &Page,
        comm: &mut Comm,
        space: &Space,
        particles: &Particles,
        (step, time): (u64, f64),
        last: bool,
    ) -> Result<(), Failure> {
        if self.outputs.vtu {
            self.write_vtu(page, comm, particles, step, time)?;
        }
        let (min, max) = (space.domain.min, space.domain.max);
        if self.outputs.dump
            && let Some(mut all) = gather(comm, particles)?
        {
            all.sort_unstable_by_key(|particle| particle.id);
            let text = dump::dump(step, min, max, space.periodic, &all);
            files::commit_bytes(page, &self.folder.join(format!("step-{step}.dump")), &text)?;
        }
        let colour = match self.outputs.picture.colour {
            Colour::Rank => ColourBy::Rank,
            Colour::Speed => ColourBy::Speed,
            Colour::None => return Ok(()),
        };
        if last {
            let own = shown(particles, comm.rank());
            let mut reach = Scene::reach(&own);
            comm.all_reduce(&mut reach, f64::max)?;
            let scene = Scene::new(reach, min, max);
            let seen: Vec<FullRecord> =
                visible(&own, &scene).into_iter().map(|index| particles.full_record(index)).collect();
            if let Some(shown) = gather_records(comm, &seen)? {
                let path = self.folder.join("packing.png");
                let png = picture(&shown, &scene, comm.size(), colour)
                    .map_err(|e| Failure::write(&path, std::io::Error::other(e)))?;
                files::commit_bytes(page, &path, &png)?;
            }
        }
        Ok(())
    }

    fn write_vtu(
        &mut self,
        page: &Page,
        comm: &mut Comm,
        particles: &Particles,
        step: u64,
        time: f64,
    ) -> Result<(), Failure> {
        let own = shown(particles, comm.rank());
        let name = |rank| match comm.size() {
            1 => format!("step-{step}.vtu"),
            _ => format!("step-{step}-{rank}.vtu"),
        };
        files::commit_bytes(page, &self.folder.join(name(comm.rank())), &vtu::vtu(&own))?;
        let pieces: Vec<String> = (0..comm.size()).map(name).collect();
        // The files that name the pieces come after them.
        comm.barrier()?;
        let joined = match pieces.as_slice() {
            [only] => only.clone(),
            _ => format!("step-{step}.pvtu"),
        };
        if comm.rank() == 0 {
            if pieces.len() > 1 {
                files::commit_bytes(page, &self.folder.join(&joined), &vtu::pvtu(&pieces))?;
            }
            self.written.push((time, joined));
            files::commit_bytes(page, &self.folder.join("packing.pvd"), &vtu::pvd(&self.written))?;
        }
        Ok(())
    }
}

/// A particle of `rank` as outputs show it.
pub fn shown_record(record: &FullRecord, rank: u32) -> Shown {
    let vector = |v: [f64; 4]| [v[0], v[1], v[2]];
    Shown {
        id: record.id,
        position: vector(record.position),
        radius: record.position[3],
        velocity: vector(record.velocity),
        spin: vector(record.spin),
        rank,
        material: record.material,
    }
}

fn records(particles: &Particles) -> impl Iterator<Item = FullRecord> + '_ {
    (0..particles.owned()).map(|i| particles.full_record(i))
}

fn shown(particles: &Particles, rank: u32) -> Vec<Shown> {
    records(particles).map(|record| shown_record(&record, rank)).collect()
}

/// The particles of all ranks, on rank 0.
fn gather(comm: &mut Comm, particles: &Particles) -> Result<Option<Vec<Shown>>, Failure> {
    gather_records(comm, &records(particles).collect::<Vec<_>>())
}

fn gather_records(comm: &mut Comm, own: &[FullRecord]) -> Result<Option<Vec<Shown>>, Failure> {
    let parts = comm.gather(bytemuck::cast_slice(own).to_vec())?;
    let read = |(rank, part): (u32, Vec<u8>)| {
        let records = part.chunks_exact(size_of::<FullRecord>()).map(bytemuck::pod_read_unaligned);
        records.map(|record| shown_record(&record, rank)).collect::<Vec<_>>()
    };
    Ok(parts.map(|parts| (0..).zip(parts).flat_map(read).collect()))
}
