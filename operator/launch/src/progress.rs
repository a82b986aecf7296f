//! From the ranks' pages to one aggregate per job.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dem_page::State;

use crate::protocol::{Progress, RankFigures};

/// Length of the window that rates and shares are taken over.
const WINDOW: Duration = Duration::from_secs(10);
/// Shortest distance of two kept snapshots: bounds memory at a few dozen.
const SPACING: Duration = Duration::from_millis(300);
/// Load below which a window's differences are noise, CPU seconds over all ranks.
const LITTLE_LOAD: f64 = 0.01;

/// The last seconds' pages.
#[derive(Default)]
pub struct History(VecDeque<(Instant, Vec<RankFigures>)>);

impl History {
    /// Adds what is known now (ascending by rank) and returns the aggregate; none while no rank has started. One that
    /// still reads its checkpoint has figures of no step yet.
    pub fn add(&mut self, now: Instant, mut ranks: Vec<RankFigures>) -> Option<Progress> {
        ranks.retain(|rank| rank.state != State::Starting as u64);
        while self.0.len() > 1 && now.duration_since(self.0[1].0) >= WINDOW {
            self.0.pop_front();
        }
        let past = self.0.front().map(|(at, ranks)| (now.duration_since(*at).as_secs_f64(), &**ranks));
        let progress = aggregate(&ranks, past);
        if self.0.back().is_none_or(|(at, _)| now.duration_since(*at) >= SPACING) && !ranks.is_empty() {
            self.0.push_back((now, ranks));
        }
        progress
    }
}

/// Aggregates pages; `past` is how many seconds ago the ranks looked how.
fn aggregate(ranks: &[RankFigures], past: Option<(f64, &[RankFigures])>) -> Option<Progress> {
    let step = ranks.iter().map(|r| r.step).min()?;
    let steps = ranks.iter().map(|r| r.end_step).max()?;
    let past = past.filter(|(seconds, before)| {
        // Only the same ranks can be compared.
        *seconds > 0.0
            && before.len() == ranks.len()
            && before.iter().zip(ranks).all(|(b, r)| b.rank == r.rank)
    });
    let gained = |value: fn(&RankFigures) -> f64| -> Vec<f64> {
        let before = |i: usize| past.map_or(0.0, |(_, before)| value(&before[i]));
        ranks.iter().enumerate().map(|(i, r)| (value(r) - before(i)).max(0.0)).collect()
    };
    let total = |values: &[f64]| values.iter().sum::<f64>();
    let mut loads = gained(|r| r.calc_seconds);
    if total(&loads) < LITTLE_LOAD {
        loads = ranks.iter().map(|r| r.calc_seconds).collect();
    }
    let (slowest, _) = (0..)
        .zip(&loads)
        .fold((0, 0.0), |best: (usize, f64), (i, load)| if *load > best.1 { (i, *load) } else { best });
    let wall = total(&gained(|r| r.wall_seconds));
    let share = |part: f64| if wall > 0.0 { part / wall } else { 0.0 };
    let steps_per_second = past.map_or(0.0, |(seconds, before)| {
        let then = before.iter().map(|r| r.step).min().unwrap_or(step);
        step.saturating_sub(then) as f64 / seconds
    });
    let by_level = |levels: fn(&RankFigures) -> [u64; dem_page::LEVELS]| {
        std::array::from_fn(|level| ranks.iter().fold(0_u64, |sum, r| sum.saturating_add(levels(r)[level])))
    };
    Some(Progress {
        ranks: ranks.len() as u32,
        step,
        steps,
        start_step: ranks.iter().map(|r| r.start_step).min()?,
        particles: ranks.iter().fold(0, |sum, r| sum.saturating_add(r.particles)),
        steps_per_second,
        seconds_left: (steps_per_second > 0.0).then(|| steps.saturating_sub(step) as f64 / steps_per_second),
        last_checkpoint_step: ranks.iter().map(|r| r.checkpoint_step).min().flatten(),
        lambda: dem_page::imbalance(loads.iter().copied()),
        slowest_rank: ranks[slowest].rank,
        wait_share: share(total(&gained(|r| r.wait1_seconds + r.wait2_seconds))),
        comm_share: share(total(&gained(|r| r.comm_seconds))),
        start_ghosts: by_level(|r| r.start_ghosts_received),
        bytes_received: by_level(|r| r.bytes_received),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, step: u64, calc_seconds: f64) -> RankFigures {
        RankFigures {
            rank,
            state: State::Running as u64,
            step,
            end_step: 100,
            particles: 10,
            calc_seconds,
            wall_seconds: step as f64,
            wait1_seconds: step as f64 * 0.25,
            start_ghosts_received: [3, 4],
            checkpoint_step: (rank == 0).then_some(5),
            ..Default::default()
        }
    }

    #[test]
    fn the_slowest_rank_sets_step_and_lambda_and_the_window_sets_the_rate() {
        let start = Instant::now();
        let mut history = History::default();
        assert_eq!(history.add(start, Vec::new()), None);
        let first = history.add(start, vec![rank(0, 0, 50.0), rank(1, 0, 0.0)]).unwrap();
        assert_eq!((first.steps_per_second, first.seconds_left), (0.0, None));
        let starting = RankFigures { rank: 1, ..Default::default() };
        let half = history.add(start + Duration::from_secs(1), vec![rank(0, 9, 50.0), starting]).unwrap();
        assert_eq!((half.ranks, half.step), (1, 9), "a rank that starts says nothing of the step");
        let later =
            history.add(start + Duration::from_secs(4), vec![rank(0, 20, 51.0), rank(1, 22, 3.0)]).unwrap();
        assert_eq!((later.step, later.steps, later.particles), (20, 100, 20));
        assert_eq!((later.steps_per_second, later.seconds_left), (5.0, Some(16.0)));
        // Loads of the window, 1 and 3 s, not the totals.
        assert_eq!((later.lambda, later.slowest_rank), (0.5, 1));
        assert!((later.wait_share - 0.25).abs() < 1e-12);
        assert_eq!(later.start_ghosts, [6, 8]);
        // Rank 1 has no checkpoint, so the job has none.
        assert_eq!(later.last_checkpoint_step, None);
    }

    #[test]
    fn the_window_moves_on_so_a_stalled_job_shows_rate_zero() {
        let start = Instant::now();
        let mut history = History::default();
        let mut last = None;
        for second in 0..60 {
            last = history.add(start + Duration::from_secs(second), vec![rank(0, second.min(20), 1.0)]);
        }
        assert_eq!(last.unwrap().steps_per_second, 0.0);
    }
}
