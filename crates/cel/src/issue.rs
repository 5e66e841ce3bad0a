//! The complaints of the compiler, with their places.

use std::fmt;

/// The greatest number of complaints that are shown.
const MOST_SHOWN: usize = 100;
/// The length of a line, in bytes, above which it is not shown.
const LONGEST_LINE: usize = 16384;

/// A complaint about a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Offset in characters; `None` for a complaint about the whole expression.
    pub at: Option<usize>,
    /// The complaint.
    pub text: String,
}

/// The complaints about an expression, which is therefore no program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issues {
    source: String,
    all: Vec<Issue>,
    total: usize,
}

impl Issues {
    /// Makes an empty set for a source.
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), all: Vec::new(), total: 0 }
    }
    pub(crate) fn push(&mut self, at: Option<usize>, text: String) {
        self.total += 1;
        if self.all.len() < MOST_SHOWN {
            self.all.push(Issue { at, text });
        }
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// The complaints in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.all.iter()
    }
    /// The number of complaints, also of those that are not kept.
    pub fn total(&self) -> usize {
        self.total
    }
}

/// The complaints as cel-go prints them: each with its line of the source, and a mark below it.
impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<&str> = self.source.split('\n').collect();
        let mut starts = Vec::with_capacity(lines.len());
        let mut offset = 0;
        for line in &lines {
            starts.push(offset);
            offset += line.chars().count() + 1;
        }
        let place = |issue: &Issue| match issue.at {
            None => (-1, -1),
            Some(at) => {
                let line = starts.partition_point(|s| *s <= at).max(1);
                (line as i64, (at - starts[line - 1]) as i64)
            }
        };
        let mut sorted: Vec<(&Issue, (i64, i64))> = self.all.iter().map(|i| (i, place(i))).collect();
        sorted.sort_by_key(|(_, at)| *at);
        for (i, (issue, (line, column))) in sorted.into_iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            // An empty source has no columns.
            let column = if self.source.is_empty() { -1 } else { column };
            write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.text)?;
            let text = usize::try_from(line - 1).ok().and_then(|l| lines.get(l));
            if let Some(text) = text.filter(|t| t.len() <= LONGEST_LINE && !self.source.is_empty()) {
                snippet(f, text, column as usize)?;
            }
        }
        match self.total - self.all.len() {
            0 => Ok(()),
            more => write!(f, "\n{more} more errors were truncated"),
        }
    }
}

/// A line and the mark below one of its characters.
fn snippet(f: &mut fmt::Formatter<'_>, line: &str, column: usize) -> fmt::Result {
    let text = line.replace('\t', " ");
    let dots: String = text.chars().take(column).map(|c| if c.is_ascii() { '.' } else { '．' }).collect();
    let mark = if text.chars().nth(column).is_some_and(|c| !c.is_ascii()) { '＾' } else { '^' };
    write!(f, "\n | {text}\n | {dots}{mark}")
}
