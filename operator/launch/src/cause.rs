//! The first cause of an attempt's failure, out of everything that its end left behind.

use dem_page::exit;

use crate::protocol::{Failure, FailureKind, FailureReason, LAST_LINES, RankEnd, RankFigures, WorkerHost};

/// What is known after `mpirun` has ended or was ended.
pub(crate) struct Evidence<'a> {
    /// Workers of the attempt.
    pub(crate) workers: &'a [WorkerHost],
    /// Indices of workers that did not answer for a lease or whose lease had ended, and what was last heard.
    pub(crate) lost: &'a [(usize, String)],
    /// What the ranks' wrappers recorded.
    pub(crate) ends: &'a [RankEnd],
    /// The ranks' pages.
    pub(crate) figures: &'a [RankFigures],
    /// `mpirun`'s exit code.
    pub(crate) exit_code: i32,
    /// Last lines of its output.
    pub(crate) last_lines: &'a [String],
}

/// Chooses the first cause. A lost worker comes before anything that ranks report: they may fail because of it.
pub(crate) fn first_cause(evidence: &Evidence<'_>) -> Failure {
    let Evidence { workers, lost, .. } = *evidence;
    if !lost.is_empty() {
        let hosts: Vec<&WorkerHost> = lost.iter().map(|(index, _)| &workers[*index]).collect();
        let told: Vec<String> = lost
            .iter()
            .map(|(index, why)| {
                let host = &workers[*index];
                format!("{} on node {} (ranks {}): {why}", host.pod, host.node, ranges(&host.ranks))
            })
            .collect();
        return on_hosts(FailureReason::WorkerLost, format!("worker lost: {}", told.join("; ")), &hosts);
    }
    if let Some(failure) = rank_that_failed(evidence) {
        return failure;
    }
    if let Some((rank, signal)) = evidence.last_lines.iter().find_map(|line| signalled_rank(line)) {
        // The wrapper itself was killed and left no record.
        let message = format!("rank {rank} was killed by signal {signal}");
        let base = failure(FailureKind::Program, FailureReason::RankSignalled, message);
        let failure = Failure { rank: Some(rank), signal: Some(signal), ..base };
        return Failure { last_lines: evidence.last_lines.to_vec(), ..at_rank(failure, workers, rank) };
    }
    let no_daemon =
        evidence.last_lines.iter().any(|line| line.contains("orted") && line.contains("not found"));
    let (kind, message) = if no_daemon {
        (FailureKind::Configuration, "the image has no orted in its PATH, must contain Open MPI".to_owned())
    } else {
        // Every rank's wrapper reports how its program ended: without a report it was not the program.
        (
            FailureKind::Infrastructure,
            format!("mpirun ended with code {}, no rank reported a failure", evidence.exit_code),
        )
    };
    let base = failure(kind, FailureReason::LaunchFailed, message);
    Failure { exit_code: Some(evidence.exit_code), last_lines: evidence.last_lines.to_vec(), ..base }
}

/// The earliest rank that failed of itself: not told to end before, and with a message in its page before one without.
fn rank_that_failed(evidence: &Evidence<'_>) -> Option<Failure> {
    let message_of = |rank: u32| {
        let page = evidence.figures.iter().find(|r| r.rank == rank)?;
        Some(page.message.as_str()).filter(|message| !message.is_empty())
    };
    let own = |end: &&RankEnd| !end.told && end.exit_code != Some(0);
    // A fenced rank only tells that its lease had ended.
    let first = evidence.ends.iter().filter(own).min_by_key(|end| {
        (end.exit_code == Some(exit::FENCED), message_of(end.rank).is_none(), end.at_ms, end.rank)
    });
    // MPI_Abort may signal the failing rank before it has left: its page still has the message.
    let first = first.or_else(|| evidence.ends.iter().find(|end| message_of(end.rank).is_some()))?;
    let rank = first.rank;
    let page_message = message_of(rank);
    let (kind, reason, what) = match (first.not_started.as_ref(), first.exit_code, first.signal) {
        (Some(why), ..) => (FailureKind::Configuration, FailureReason::ProgramNotStarted, why.clone()),
        // Codes mean something only from our own solver, which leaves a message in its page.
        (_, Some(code @ exit::GUARD), _) if page_message.is_some() => {
            (FailureKind::Program, FailureReason::GuardViolated, format!("ended with code {code}"))
        }
        (_, Some(code @ (exit::INPUT | exit::UNREADABLE)), _) if page_message.is_some() => {
            (FailureKind::Configuration, FailureReason::RankExited, format!("ended with code {code}"))
        }
        (_, Some(code), _) => {
            (FailureKind::Program, FailureReason::RankExited, format!("ended with code {code}"))
        }
        (_, None, signal) => {
            let what = format!("was killed by signal {}", signal.unwrap_or_default());
            (FailureKind::Program, FailureReason::RankSignalled, what)
        }
    };
    let message = match page_message {
        Some(message) => format!("rank {rank} {what}: {message}"),
        None => format!("rank {rank} {what}"),
    };
    let base = failure(kind, reason, message);
    let failure = Failure {
        rank: Some(rank),
        exit_code: first.exit_code,
        signal: first.signal,
        last_lines: first.last_lines.iter().rev().take(LAST_LINES).rev().cloned().collect(),
        ..base
    };
    Some(at_rank(failure, evidence.workers, rank))
}

/// Rank and signal of Open MPI's "process rank 3 with PID 42 on node n exited on signal 9 (Killed).".
fn signalled_rank(line: &str) -> Option<(u32, i32)> {
    let number_after = |text: &str, mark: &str| {
        let (_, rest) = text.split_once(mark)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let rank = number_after(line, "process rank ")?;
    Some((rank, number_after(line, "exited on signal ")?.try_into().ok()?))
}

/// A failure without a place.
pub(crate) fn failure(kind: FailureKind, reason: FailureReason, message: String) -> Failure {
    Failure {
        kind,
        reason,
        message,
        rank: None,
        pods: Vec::new(),
        nodes: Vec::new(),
        exit_code: None,
        signal: None,
        last_lines: Vec::new(),
    }
}

/// A failure of infrastructure at these workers.
pub(crate) fn on_hosts(reason: FailureReason, message: String, hosts: &[&WorkerHost]) -> Failure {
    Failure {
        pods: hosts.iter().map(|host| host.pod.clone()).collect(),
        nodes: hosts.iter().map(|host| host.node.clone()).collect(),
        ..failure(FailureKind::Infrastructure, reason, message)
    }
}

fn at_rank(failure: Failure, workers: &[WorkerHost], rank: u32) -> Failure {
    match workers.iter().find(|host| host.ranks.contains(&rank)) {
        Some(host) => Failure { pods: vec![host.pod.clone()], nodes: vec![host.node.clone()], ..failure },
        None => failure,
    }
}

/// Ascending numbers, shortened: `0-3,7`.
pub(crate) fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|(n, expected)| *n == expected).count();
        let separator = if text.is_empty() { "" } else { "," };
        text += &match run {
            1 => format!("{separator}{first}"),
            _ => format!("{separator}{first}-{}", rest[run - 1]),
        };
        rest = &rest[run..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(index: u8, ranks: &[u32]) -> WorkerHost {
        WorkerHost {
            pod: format!("job-w{index}-1"),
            uid: format!("uid-{index}"),
            node: format!("node-{index}"),
            address: [127, 0, 0, index].into(),
            ranks: ranks.to_vec(),
        }
    }

    fn end(rank: u32, at_ms: u64, exit_code: Option<i32>, signal: Option<i32>, told: bool) -> RankEnd {
        RankEnd {
            rank,
            at_ms,
            exit_code,
            signal,
            told,
            not_started: None,
            last_lines: vec![format!("r{rank}")],
        }
    }

    fn cause(lost: &[(usize, String)], ends: &[RankEnd], figures: &[RankFigures], lines: &[&str]) -> Failure {
        let workers = [host(1, &[0, 1]), host(2, &[2, 3])];
        let last_lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        first_cause(&Evidence {
            workers: &workers,
            lost,
            ends,
            figures,
            exit_code: 1,
            last_lines: &last_lines,
        })
    }

    #[test]
    fn the_rank_that_failed_of_itself_is_named_not_those_that_mpirun_killed() {
        let ends = [
            end(0, 90, None, Some(15), true),
            end(3, 100, None, Some(11), false),
            end(1, 120, Some(1), None, false),
        ];
        let failure = cause(&[], &ends, &[], &[]);
        assert_eq!((failure.kind, failure.reason), (FailureKind::Program, FailureReason::RankSignalled));
        assert_eq!(
            (failure.rank, failure.signal, failure.nodes),
            (Some(3), Some(11), vec!["node-2".to_owned()])
        );
        assert_eq!(failure.last_lines, ["r3"]);
    }

    #[test]
    fn a_guard_message_in_a_page_wins_over_an_earlier_exit() {
        let ends = [end(0, 90, Some(1), None, false), end(2, 100, Some(66), None, false)];
        let page = RankFigures { rank: 2, message: "overlap of particle 7".into(), ..Default::default() };
        let failure = cause(&[], &ends, &[page], &[]);
        assert_eq!((failure.reason, failure.rank), (FailureReason::GuardViolated, Some(2)));
        assert!(failure.message.contains("overlap of particle 7"), "{}", failure.message);
    }

    #[test]
    fn input_that_our_solver_refuses_is_a_configuration_error_and_another_program_s_code_is_not() {
        let refused =
            |figures: &[RankFigures]| cause(&[], &[end(2, 100, Some(64), None, false)], figures, &[]);
        let page =
            RankFigures { rank: 2, message: "plan.json: made for 3 ranks".into(), ..Default::default() };
        let failure = refused(&[page]);
        assert_eq!((failure.kind, failure.reason), (FailureKind::Configuration, FailureReason::RankExited));
        assert!(failure.message.contains("made for 3 ranks"), "{}", failure.message);
        assert_eq!(refused(&[]).kind, FailureKind::Program);
    }

    #[test]
    fn a_lost_worker_comes_before_what_ranks_report() {
        let failure = cause(&[(1, "no answer".into())], &[end(0, 1, Some(1), None, false)], &[], &[]);
        assert_eq!((failure.kind, failure.reason), (FailureKind::Infrastructure, FailureReason::WorkerLost));
        assert!(
            failure.message.contains("job-w2-1 on node node-2 (ranks 2-3): no answer"),
            "{}",
            failure.message
        );
    }

    #[test]
    fn without_a_record_mpirun_s_own_words_name_the_rank() {
        let line = "mpirun noticed that process rank 3 with PID 0 on node vm exited on signal 9 (Killed).";
        let failure = cause(&[], &[end(0, 1, None, Some(15), true)], &[], &[line]);
        assert_eq!(
            (failure.rank, failure.signal, failure.pods),
            (Some(3), Some(9), vec!["job-w2-1".to_owned()])
        );
        let failure = cause(&[], &[], &[], &["/bin/sh: 1: orted: not found"]);
        assert_eq!((failure.kind, failure.reason), (FailureKind::Configuration, FailureReason::LaunchFailed));
    }

    #[test]
    fn numbers_are_shortened_to_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
    }
}
