//! A plan as people read it.

use std::fmt::Write;

use dem_decomp::Source;

use crate::plan::Plan;

impl Plan {
    /// The plan as a table: a line per node, then the predicted ghosts per step, with the ranks in order of a flat
    /// decomposition for comparison.
    #[must_use]
    pub fn table(&self) -> String {
        let ghosts = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), thousands);
        let mut rows =
            vec![["NODE", "CORES", "RANKS", "SUBDOMAINS", "GHOSTS IN", "GHOSTS OUT"].map(str::to_owned)];
        for (node, in_file) in self.nodes.iter().zip(&self.file.nodes) {
            let subdomains: Vec<u32> =
                in_file.ranks.iter().map(|&rank| self.file.subdomain_of_rank[rank as usize]).collect();
            rows.push([
                node.name.clone(),
                node.cores.to_string(),
                ranges(&in_file.ranks),
                ranges(&subdomains),
                ghosts(node.received_ghosts),
                ghosts(node.sent_ghosts),
            ]);
        }
        let mut text = align(&rows);
        let file = &self.file;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\n{} ranks on {} node{}, decomposition {:?}, mapping {:?}{}",
            file.ranks,
            self.nodes.len(),
            if self.nodes.len() == 1 { "" } else { "s" },
            file.decomposition,
            file.mapping,
            if self.proven { " (proven optimum for these boxes)" } else { "" },
        );
        let Some(predicted) = &file.predicted else {
            text.push_str("Ghosts are not predicted: who talks to whom is not known.\n");
            return text;
        };
        let known = match file.source {
            Source::Exact => "exact at step 0",
            Source::Assumed => "assuming an even filling",
        };
        let _ = writeln!(text, "\nGhosts per step ({known}):");
        let change = match predicted.in_order_ghosts {
            0 => String::new(),
            base => {
                format!("{:+.1} %", 100.0 * (predicted.inter_node_ghosts as f64 / base as f64 - 1.0))
            }
        };
        let rows = [
            ["  between ranks".to_owned(), thousands(predicted.inter_rank_ghosts), String::new()],
            ["  between nodes".to_owned(), thousands(predicted.inter_node_ghosts), change],
            [
                "  flat and in order".to_owned(),
                thousands(predicted.in_order_ghosts),
                "for comparison".to_owned(),
            ],
            ["  busiest node".to_owned(), thousands(predicted.busiest_node_ghosts), "in and out".to_owned()],
        ];
        text.push_str(&align(&rows));
        text
    }
}

/// Columns as wide as their widest cell, two spaces apart.
fn align<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// `27468` as `27,468`.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `[0, 1, 2, 5]` as `0-2,5`.
fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &n in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => parts.push((n, n)),
        }
    }
    let part = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_runs_shortened() {
        assert_eq!([0, 999, 1_000, 1_000_188].map(thousands), ["0", "999", "1,000", "1,000,188"]);
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
    }
}
