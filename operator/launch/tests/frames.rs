//! Hostile bytes on a connection are refused; they neither panic nor reserve memory that did not arrive.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use dem_launch::protocol::{
    AttemptSpec, Conclusion, Failure, FailureKind, FailureReason, Frame, LauncherRequest, MAX_FRAME, Outcome,
    Progress, ProtocolError, TERMINATION_BYTES, WorkerRequest, read_frame, receive,
};
use proptest::prelude::*;

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

proptest! {
    #[test]
    fn any_bytes_give_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = wait(read_frame(&mut bytes.as_slice()));
        let _ = wait(receive::<_, WorkerRequest>(&mut bytes.as_slice()));
    }

    #[test]
    fn any_payload_of_a_message_gives_a_request_or_an_error(payload in ".{0,200}") {
        let bytes = Frame::Message(payload.into_bytes()).encode().unwrap();
        let _ = wait(receive::<_, LauncherRequest>(&mut bytes.as_slice()));
        let _ = wait(receive::<_, WorkerRequest>(&mut bytes.as_slice()));
    }

    #[test]
    fn a_frame_survives_encoding(kind in 0_u8..4, payload in proptest::collection::vec(any::<u8>(), 0..1000)) {
        let frame = Frame::decode(kind, payload).unwrap();
        let bytes = frame.encode().unwrap();
        prop_assert_eq!(wait(read_frame(&mut bytes.as_slice())).unwrap(), frame);
    }
}

#[test]
fn lengths_out_of_range_and_cut_frames_are_refused() {
    for length in [0, MAX_FRAME as u32 + 1, u32::MAX] {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend([0; 16]);
        let error = wait(read_frame(&mut bytes.as_slice())).unwrap_err();
        assert!(matches!(error, ProtocolError::Length { found } if found == length as usize), "{error}");
    }
    let bytes = [0, 0, 1, 0, 0, b'{'];
    assert!(matches!(wait(read_frame(&mut bytes.as_slice())), Err(ProtocolError::Closed)));
    assert!(Frame::Stdout(vec![0; MAX_FRAME]).encode().is_err());
    let deep = Frame::Message("[".repeat(100_000).into_bytes()).encode().unwrap();
    assert!(matches!(wait(receive::<_, WorkerRequest>(&mut deep.as_slice())), Err(ProtocolError::Json(_))));
}

#[test]
fn a_spec_that_cannot_be_run_is_refused_with_the_field() {
    let worker =
        |ranks: &str| format!(r#"{{"pod":"p","uid":"u","node":"n","address":"10.0.0.1","ranks":{ranks}}}"#);
    let spec = |workers: &str, rest: &str| -> AttemptSpec {
        let common = r#""job":"j","namespace":"n","attempt":1,"token":"t","startDeadlineSeconds":1,
            "workerLeaseSeconds":1,"launcherLeaseSeconds":1"#;
        serde_json::from_str(&format!(r#"{{{common},"workers":[{workers}],{rest}}}"#)).unwrap()
    };
    let command = r#""command":["true"]"#;
    let refusal = |workers: &str, rest: &str| spec(workers, rest).host_of_rank().unwrap_err();
    assert!(refusal(&worker("[0,0]"), command).contains("rank 0 is listed twice"));
    assert!(refusal(&worker("[0,2]"), command).contains("rank 2 of p is not below 2"));
    assert!(refusal("", command).contains("no rank"));
    assert!(refusal(&worker("[0]"), r#""command":[]"#).contains("command"));
    assert!(refusal(&worker("[0]"), &format!(r#"{command},"files":{{"../x":""}}"#)).contains("../x"));
    assert_eq!(spec(&worker("[1,0]"), command).host_of_rank().unwrap().len(), 2);
}

#[test]
fn a_termination_message_fits_and_keeps_the_cause_and_the_newest_lines() {
    let failure = Failure {
        kind: FailureKind::Program,
        reason: FailureReason::RankExited,
        message: "m".repeat(3000),
        rank: Some(3),
        pods: vec!["p".repeat(253); 400],
        nodes: vec!["n".repeat(253); 400],
        exit_code: Some(7),
        signal: None,
        last_lines: (0..20).map(|i| format!("line {i} {}", "\u{1}é".repeat(500))).collect(),
    };
    let outcome = Outcome {
        attempt: 3,
        conclusion: Conclusion::Failed,
        exit_code: 7,
        stop_reason: Some("s".repeat(5000)),
        failure: Some(failure.clone()),
        progress: Some(Progress::default()),
        ended_workers: vec!["w".repeat(60); 1000],
    };
    let text = outcome.termination_message();
    assert!(text.len() <= TERMINATION_BYTES, "{}", text.len());
    let read: Outcome = serde_json::from_str(&text).unwrap();
    let kept = read.failure.unwrap();
    assert_eq!((read.exit_code, kept.rank, kept.reason), (7, Some(3), FailureReason::RankExited));

    let lines = (0..20).map(|i| format!("line {i} {}", "x".repeat(300))).collect();
    let modest =
        Failure { message: "short".into(), pods: vec![], nodes: vec![], last_lines: lines, ..failure };
    let outcome = Outcome { failure: Some(modest), stop_reason: None, ended_workers: vec![], ..outcome };
    let text = outcome.termination_message();
    assert!(text.len() <= TERMINATION_BYTES);
    assert!(text.contains("line 19 ") && !text.contains("line 0 "));

    let quiet = Outcome { failure: None, stop_reason: Some("s".repeat(9000)), ..outcome };
    assert!(quiet.termination_message().len() <= TERMINATION_BYTES);
}
