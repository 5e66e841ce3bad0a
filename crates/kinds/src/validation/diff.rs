//! A unified diff of two texts, as difflib makes it.

use std::collections::HashMap;
use std::fmt::Write;

/// Compact JSON with one value a line and one space for each level, as Go's `MarshalIndent` writes it.
pub(super) fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let mut chars = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    };
    while let Some(c) = chars.next() {
        if quoted {
            out.push(c);
            (quoted, escaped) = (c != '"' || escaped, c == '\\' && !escaped);
            continue;
        }
        match c {
            '"' => {
                quoted = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                if let Some(close) = chars.next_if(|n| matches!(n, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => out.push(c),
        }
    }
    out
}

struct Block {
    a: usize,
    b: usize,
    len: usize,
}

/// The greatest number of pairs of lines that are compared. The remaining lines then count as changed.
///
/// DIFFERENCE: upstream compares all, which are 200 million for 20,000 entries in another order.
const MOST_STEPS: usize = 500_000;

/// The longest run of equal lines within the bounds, the earliest of several; counts its steps.
fn longest(
    a: &[&str],
    at_b: &HashMap<&str, Vec<usize>>,
    (alo, ahi): (usize, usize),
    (blo, bhi): (usize, usize),
    steps: &mut usize,
) -> Block {
    let mut best = Block { a: alo, b: blo, len: 0 };
    let mut runs: HashMap<usize, usize> = HashMap::new();
    for (i, line) in a.iter().enumerate().take(ahi).skip(alo) {
        let mut next = HashMap::new();
        *steps += 1;
        if *steps > MOST_STEPS {
            return best;
        }
        let all = at_b.get(line).map_or(&[][..], Vec::as_slice);
        for &j in &all[all.partition_point(|j| *j < blo)..] {
            if j >= bhi {
                break;
            }
            *steps += 1;
            let k = j.checked_sub(1).and_then(|p| runs.get(&p)).copied().unwrap_or(0) + 1;
            next.insert(j, k);
            if k > best.len {
                best = Block { a: i + 1 - k, b: j + 1 - k, len: k };
            }
        }
        runs = next;
    }
    best
}

/// The runs of lines that both texts have, in order.
fn matching(a: &[&str], b: &[&str]) -> Vec<Block> {
    let mut at_b: HashMap<&str, Vec<usize>> = HashMap::new();
    for (j, line) in b.iter().enumerate() {
        at_b.entry(line).or_default().push(j);
    }
    // difflib does not start a run at a line that a long text has too often.
    if b.len() >= 200 {
        let limit = b.len() / 100 + 1;
        at_b.retain(|_, v| v.len() <= limit);
    }
    let mut found = Vec::new();
    let mut steps = 0;
    let mut todo = vec![(0, a.len(), 0, b.len())];
    while let Some((alo, ahi, blo, bhi)) = todo.pop() {
        if steps > MOST_STEPS {
            break;
        }
        let mut m = longest(a, &at_b, (alo, ahi), (blo, bhi), &mut steps);
        while m.a > alo && m.b > blo && a[m.a - 1] == b[m.b - 1] {
            m = Block { a: m.a - 1, b: m.b - 1, len: m.len + 1 };
        }
        while m.a + m.len < ahi && m.b + m.len < bhi && a[m.a + m.len] == b[m.b + m.len] {
            m.len += 1;
        }
        if m.len == 0 {
            continue;
        }
        if alo < m.a && blo < m.b {
            todo.push((alo, m.a, blo, m.b));
        }
        if m.a + m.len < ahi && m.b + m.len < bhi {
            todo.push((m.a + m.len, ahi, m.b + m.len, bhi));
        }
        found.push(m);
    }
    found.sort_by_key(|m| (m.a, m.b));
    let mut joined: Vec<Block> = Vec::new();
    for m in found {
        match joined.last_mut() {
            Some(l) if l.a + l.len == m.a && l.b + l.len == m.b => l.len += m.len,
            _ => joined.push(m),
        }
    }
    joined
}

/// A change: lines `a` of the old text became lines `b` of the new.
struct Change {
    a: (usize, usize),
    b: (usize, usize),
}

fn range(lo: usize, hi: usize) -> String {
    match hi - lo {
        1 => format!("{}", lo + 1),
        0 => format!("{lo},0"),
        n => format!("{},{n}", lo + 1),
    }
}

/// The diff, with three lines around each change and without file names.
pub(super) fn unified(a: &str, b: &str) -> String {
    const CONTEXT: usize = 3;
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split('\n').collect(), b.split('\n').collect());
    let mut changes: Vec<Change> = Vec::new();
    let (mut i, mut j) = (0, 0);
    for m in matching(&a, &b).iter().chain(std::iter::once(&Block { a: a.len(), b: b.len(), len: 0 })) {
        if i < m.a || j < m.b {
            changes.push(Change { a: (i, m.a), b: (j, m.b) });
        }
        (i, j) = (m.a + m.len, m.b + m.len);
    }
    let mut out = String::new();
    let mut rest = changes.as_slice();
    while let Some(first) = rest.first() {
        let count = 1 + rest.windows(2).take_while(|w| w[1].a.0 - w[0].a.1 <= 2 * CONTEXT).count();
        let (group, tail) = rest.split_at(count);
        rest = tail;
        let Some(last) = group.last() else { break };
        let before = first.a.0.min(first.b.0).min(CONTEXT);
        let after = (a.len() - last.a.1).min(CONTEXT);
        let (alo, blo) = (first.a.0 - before, first.b.0 - before);
        let (ahi, bhi) = (last.a.1 + after, last.b.1 + after);
        let _ = writeln!(out, "@@ -{} +{} @@", range(alo, ahi), range(blo, bhi));
        let mut at = alo;
        for c in group {
            for l in &a[at..c.a.0] {
                let _ = writeln!(out, " {l}");
            }
            for l in &a[c.a.0..c.a.1] {
                let _ = writeln!(out, "-{l}");
            }
            for l in &b[c.b.0..c.b.1] {
                let _ = writeln!(out, "+{l}");
            }
            at = c.a.1;
        }
        for l in &a[at..ahi] {
            let _ = writeln!(out, " {l}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_changed() {
        let a = pretty(r#"{"A":1,"B":[],"C":{"D":"x: {","E":null},"F":true}"#);
        assert_eq!(
            a,
            "{\n \"A\": 1,\n \"B\": [],\n \"C\": {\n  \"D\": \"x: {\",\n  \"E\": null\n },\n \"F\": true\n}"
        );
        let b = pretty(r#"{"A":2,"B":[],"C":{"D":"x: {","E":null},"F":true}"#);
        assert_eq!(
            unified(&a, &b),
            "@@ -1,5 +1,5 @@\n {\n- \"A\": 1,\n+ \"A\": 2,\n  \"B\": [],\n  \"C\": {\n   \"D\": \"x: {\",\n"
        );
        assert_eq!(unified(&a, &a), "");
    }
}
