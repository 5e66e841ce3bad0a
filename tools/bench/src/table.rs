//! Prints plain tables.

use std::fmt::{self, Write as _};

/// A table of cells under a head; the first column is aligned left, the others right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes an empty table.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&h| h.to_owned()).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let w = widths[c];
                if c == 0 { write!(line, "{cell:<w$}")? } else { write!(line, "  {cell:>w$}")? }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A figure with three significant digits.
pub(crate) fn figure(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    }
}
