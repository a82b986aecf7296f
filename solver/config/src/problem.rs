//! What is wrong with a simulation file, and where.

use std::fmt;

/// One thing wrong with a simulation or a particle file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// Where: a path of fields such as `particles[0].lattice.radius`, or file and line.
    pub path: String,
    /// What was found there.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

impl Problem {
    pub(crate) fn new(
        path: impl Into<String>,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self { path: path.into(), found: found.to_string(), expected: expected.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.path, self.found, self.expected)
    }
}

/// Says that `name` is unknown, with the nearest of the known ones.
pub(crate) fn unknown(path: impl Into<String>, what: &str, name: &str, known: &[impl AsRef<str>]) -> Problem {
    let nearest = known
        .iter()
        .map(AsRef::as_ref)
        .map(|candidate| {
            (strsim::damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase()), candidate)
        })
        .min_by_key(|(distance, _)| *distance);
    let expected = match nearest {
        Some((distance, candidate)) if distance <= 1 + candidate.len() / 3 => format!("`{candidate}`?"),
        _ => format!("one of {}", known.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")),
    };
    Problem::new(path, format!("unknown {what} `{}`", shorten(name)), expected)
}

/// Text as it is shown in a problem: long text is cut, control characters are escaped.
pub(crate) fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        shown.push('…');
    }
    shown
}
