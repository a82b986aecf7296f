//! Runs of the real solver on ranks that are threads.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use dem_comm::{Comm, local};
use dem_decomp::{Decomposition, Mapping, NodeRanks, PlanFile, Source};
use dem_solver::args::{KernelChoice, Restart};
use dem_solver::counters::Counters;
use dem_solver::failure::Failure;
use dem_solver::job::Job;
use dem_solver::simulation::{End, Simulation};

/// A job and where it runs.
pub(crate) struct Case {
    /// The job; tests change what they are about.
    pub(crate) job: Job,
    /// Folder of outputs and checkpoints.
    pub(crate) folder: tempfile::TempDir,
    nodes: u32,
    cut: Decomposition,
    stop_at: Option<u64>,
}

/// What a run left.
pub(crate) struct Ran {
    /// Its hash; empty if it was stopped.
    pub(crate) hash: String,
    summary: serde_json::Value,
}

impl Ran {
    /// A number of the summary.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.summary[name].as_u64().unwrap_or_else(|| panic!("summary has no {name}"))
    }

    /// The summary.
    pub(crate) fn summary(&self) -> &serde_json::Value {
        &self.summary
    }
}

impl Case {
    pub(crate) fn new(text: &str) -> Self {
        let simulation = dem_config::Simulation::from_yaml(text).unwrap_or_else(|p| panic!("{p:?}"));
        let folder = tempfile::tempdir().unwrap();
        let job = Job {
            simulation,
            particle_files: BTreeMap::new(),
            plan: None,
            attempt: 1,
            output: folder.path().join("output"),
            checkpoints: Some(folder.path().join("checkpoints")),
            restart: Restart::Auto,
            start_from: None,
            kernel: KernelChoice::Auto,
            rounding: true,
            perturb: None,
            phase: None,
            panic: None,
        };
        Self { job, folder, nodes: 1, cut: Decomposition::Flat, stop_at: None }
    }

    /// Spreads the ranks evenly over `nodes`, with the given decomposition.
    pub(crate) fn nodes(mut self, nodes: u32, cut: Decomposition) -> Self {
        (self.nodes, self.cut) = (nodes, cut);
        self
    }

    /// The next run is asked to stop once it has reached `step`.
    pub(crate) fn stop_at(&mut self, step: u64) {
        self.stop_at = Some(step);
    }

    /// Runs on `ranks` threads to the end, or to the requested stop.
    pub(crate) fn run(&mut self, ranks: u32) -> Ran {
        let stop = self.stop_at.take();
        let ends = self.ends(ranks, stop);
        for end in &ends {
            match end {
                Ok(End::Done) if stop.is_none() => {}
                Ok(End::Stopped { .. }) if stop.is_some() => {}
                other => panic!("{other:?}"),
            }
        }
        if stop.is_some() {
            return Ran { hash: String::new(), summary: serde_json::Value::Null };
        }
        let file = self.job.output.join(format!("attempt-{}/summary.json", self.job.attempt));
        let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        Ran { hash: summary["stateHash"].as_str().unwrap().to_owned(), summary }
    }

    /// How each rank ended.
    pub(crate) fn ends(&self, ranks: u32, stop_at: Option<u64>) -> Vec<Result<End, Failure>> {
        let per_node = ranks / self.nodes;
        assert_eq!(per_node * self.nodes, ranks, "ranks fill the nodes evenly");
        let node_of_rank: Vec<u32> = (0..ranks).map(|rank| rank / per_node).collect();
        let plan = PlanFile {
            version: PlanFile::VERSION,
            ranks,
            nodes: (0..self.nodes)
                .map(|n| NodeRanks {
                    name: format!("n{n}"),
                    ranks: (n * per_node..(n + 1) * per_node).collect(),
                })
                .collect(),
            decomposition: self.cut,
            mapping: Mapping::Spatial,
            objective: PlanFile::OBJECTIVE.into(),
            tree: None,
            subdomain_of_rank: (0..ranks).collect(),
            predicted: None,
            source: Source::Assumed,
            ghost_thickness: 0.0,
        };
        let mut job = self.job.clone();
        job.plan.get_or_insert(plan);
        let pages: Vec<Arc<Counters>> = (0..ranks)
            .map(|rank| {
                let page = Counters::private().unwrap();
                page.init(job.attempt, rank, ranks, 0);
                Arc::new(page)
            })
            .collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> = local::world(&node_of_rank)
                .into_iter()
                .zip(&pages)
                .map(|(rank, page)| {
                    let job = job.clone();
                    scope.spawn(move || {
                        let mut comm = Comm::new(Box::new(rank));
                        let end = Simulation::start(job, &mut comm, page).and_then(Simulation::run);
                        if let Err(failure) = &end {
                            comm.abort(failure.exit_code());
                        }
                        end
                    })
                })
                .collect();
            if let Some(step) = stop_at {
                use std::sync::atomic::Ordering;
                // Like an agent: watches the pages and asks one rank to stop.
                let last = pages.last().unwrap();
                while last.step.load(Ordering::Relaxed) < step && !threads.iter().any(|t| t.is_finished()) {
                    std::thread::yield_now();
                }
                last.stop_request.store(1, Ordering::Relaxed);
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}
