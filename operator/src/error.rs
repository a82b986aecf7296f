//! What can go wrong in a reconcile, whose business it is, and when to try again.

use std::time::Duration;

/// A reconcile that broke. Waiting, and a job that is wrong, are not errors: `dem-plan` reports them as conditions.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object could not be read.
    #[error("read {kind} {name}")]
    Read {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The API's answer.
        #[source]
        source: kube::Error,
    },
    /// An object could not be created or applied.
    #[error("apply {kind} {name}")]
    Apply {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The API's answer.
        #[source]
        source: kube::Error,
    },
    /// An object could not be deleted.
    #[error("delete {kind} {name}")]
    Delete {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The API's answer.
        #[source]
        source: kube::Error,
    },
    /// The status could not be written.
    #[error("write the status")]
    Status(#[source] kube::Error),
    /// An object of the name that we need belongs to somebody else, or to an earlier job of the same name that is
    /// still being deleted.
    #[error("{kind} {name} exists and is not this job's")]
    NotOurs {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A Secret of the job lacks a key or holds something else than a certificate.
    #[error("secret {name} is unusable: {what}")]
    Secret {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A certificate could not be issued.
    #[error("issue a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The planning task did not end.
    #[error("plan in the background")]
    Planner(#[from] tokio::task::JoinError),
    /// A pass did not come to its end.
    #[error("not done within {0:?}")]
    Overdue(Duration),
    /// The API server sent an object without what every object has.
    #[error("the API server sent a job without {0}")]
    Incomplete(&'static str),
    /// An object that we made cannot be written as JSON.
    #[error("encode {what}")]
    Encode {
        /// What it is.
        what: &'static str,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Whose business an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The API refuses what we send: nothing changes until job, quota or policy do.
    Refused,
    /// The operator lacks a permission, or admission forbids it.
    Forbidden,
    /// Somebody wrote at the same time.
    Conflict,
    /// The API or the network; it passes.
    Transient,
    /// An error of this program.
    Bug,
}

impl Error {
    /// Whose business it is.
    pub fn class(&self) -> Class {
        match self {
            Self::Read { source, .. }
            | Self::Apply { source, .. }
            | Self::Delete { source, .. }
            | Self::Status(source) => class_of(source),
            // Garbage collection or a person resolves it.
            Self::NotOurs { .. } => Class::Transient,
            Self::Secret { .. } => Class::Refused,
            Self::Certificate(_) | Self::Incomplete(_) | Self::Encode { .. } | Self::Planner(_) => Class::Bug,
            Self::Overdue(_) => Class::Transient,
        }
    }

    /// One word for metrics.
    pub fn reason(&self) -> &'static str {
        match self.class() {
            Class::Refused => "refused",
            Class::Forbidden => "forbidden",
            Class::Conflict => "conflict",
            Class::Transient => "transient",
            Class::Bug => "bug",
        }
    }
}

fn class_of(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            403 => Class::Forbidden,
            409 => Class::Conflict,
            400 | 405 | 406 | 413 | 415 | 422 => Class::Refused,
            _ => Class::Transient,
        },
        // Everything else is on the way there: connections, TLS, time-outs, answers cut short.
        _ => Class::Transient,
    }
}

/// Time until the next try after `failures` failures in a row (at least 1) of one job.
///
/// Doubles from a second, or from what suits the class; never longer than a slow resync, since nobody tells us that a
/// quota or a permission changed. `spread`, a fraction from 0 to 1 that differs between jobs, lengthens it by up to a
/// quarter so that jobs do not come back together.
pub fn backoff(class: Class, failures: u32, spread: f64) -> Duration {
    let (first, longest) = match class {
        Class::Conflict => (0.2, 5.0),
        Class::Transient => (1.0, 60.0),
        Class::Forbidden => (5.0, 120.0),
        Class::Refused | Class::Bug => (15.0, 300.0),
    };
    let doubled: f64 = first * f64::from(2_u32.saturating_pow(failures.saturating_sub(1).min(16)));
    Duration::from_secs_f64(doubled.min(longest) * (1.0 + 0.25 * spread.clamp(0.0, 1.0)))
}

/// An error with all its causes, for a log.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |said, cause| {
        let cause = cause.to_string();
        // Many errors of libraries repeat their cause.
        if said.ends_with(&cause) { said } else { format!("{said}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16) -> Error {
        Error::Status(kube::Error::Api(Box::new(Status { code, ..Status::default() })))
    }

    #[test]
    fn the_answer_of_the_api_decides_the_class() {
        for (code, class) in [
            (403, Class::Forbidden),
            (409, Class::Conflict),
            (422, Class::Refused),
            (429, Class::Transient),
            (500, Class::Transient),
        ] {
            assert_eq!(answered(code).class(), class, "{code}");
        }
    }

    #[test]
    fn backoff_doubles_up_to_a_limit_and_spreads_jobs() {
        let seconds = |n| backoff(Class::Transient, n, 0.0).as_secs_f64();
        assert_eq!([seconds(1), seconds(2), seconds(3), seconds(99)], [1.0, 2.0, 4.0, 60.0]);
        assert_eq!(backoff(Class::Transient, 1, 1.0).as_secs_f64(), 1.25);
        assert!(backoff(Class::Conflict, 1, 0.0) < Duration::from_secs(1));
    }
}
