//! Collectives between threads that stand for ranks.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use dem_comm::{Comm, CommError, Kind, LEVEL_NETWORK, LEVEL_NODE, local};

/// Runs `work` on every rank of a world and returns what they return, in rank order.
fn on_ranks<T: Send>(node_of_rank: &[u32], work: impl Fn(Comm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = local::world(node_of_rank)
            .into_iter()
            .map(|rank| scope.spawn(|| work(Comm::new(Box::new(rank)))))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

const LAYOUTS: [&[u32]; 6] = [
    &[0],
    &[0, 0],
    &[0, 1, 2],
    &[0, 0, 1, 1, 2],
    &[0, 1, 0, 1, 0, 1, 2],
    &[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
];

#[test]
fn every_rank_gets_the_sum_and_the_maximum_on_any_layout_of_nodes() {
    for layout in LAYOUTS {
        let n = layout.len() as u64;
        for (sum, max) in on_ranks(layout, |mut comm| {
            let me = u64::from(comm.rank());
            let (mut sum, mut max) = ([me, 1], [me * 3, 7]);
            comm.sum(&mut sum).unwrap();
            comm.max(&mut max).unwrap();
            (sum, max)
        }) {
            assert_eq!(sum, [n * (n - 1) / 2, n], "{layout:?}");
            assert_eq!(max, [(3 * (n - 1)), 7], "{layout:?}");
        }
    }
}

#[test]
fn broadcast_and_gather_move_bytes_of_any_length() {
    for layout in LAYOUTS {
        let all = on_ranks(layout, |mut comm| {
            let word = if comm.rank() == 0 { b"plan".to_vec() } else { Vec::new() };
            let word = comm.broadcast(word).unwrap();
            (word, comm.gather(vec![7; comm.rank() as usize]).unwrap())
        });
        assert!(all.iter().all(|(word, _)| word == b"plan"));
        let lengths: Vec<usize> = all[0].1.as_ref().unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, (0..layout.len()).collect::<Vec<_>>());
        assert!(all[1..].iter().all(|(_, gathered)| gathered.is_none()));
    }
}

#[test]
fn a_reduction_crosses_the_network_once_for_each_other_node_and_direction() {
    let traffic = on_ranks(&[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], |mut comm| {
        comm.sum(&mut [1]).unwrap();
        *comm.traffic()
    });
    let total = |level: usize| traffic.iter().map(|t| t.bytes_sent[level]).sum::<u64>();
    assert_eq!(total(LEVEL_NETWORK), 2 * 2 * 8);
    assert_eq!(total(LEVEL_NODE), 3 * 2 * 3 * 8);
    for level in [LEVEL_NODE, LEVEL_NETWORK] {
        assert_eq!(total(level), traffic.iter().map(|t| t.bytes_received[level]).sum::<u64>());
    }
}

#[test]
fn when_one_rank_ends_the_run_waiting_ranks_get_its_code() {
    let ends = on_ranks(&[0, 0, 0], |mut comm| {
        if comm.rank() == 1 {
            comm.abort(66);
            return Ok(());
        }
        comm.sum(&mut [1])
    });
    assert_eq!(ends, [Err(CommError::Aborted(66)), Ok(()), Err(CommError::Aborted(66))]);
}

#[test]
fn a_message_of_another_length_than_the_plan_says_is_an_error() {
    let ends = on_ranks(&[0, 0], |mut comm| match comm.rank() {
        0 => comm.exchange(Kind::GhostUpdate, &[(1, &[1, 2, 3])], &mut []),
        _ => comm.exchange(Kind::GhostUpdate, &[], &mut [(0, &mut [0; 4])]),
    });
    assert!(matches!(ends[1], Err(CommError::Length { found: 3, expected: 4, from: 0, rank: 1, .. })));
}
