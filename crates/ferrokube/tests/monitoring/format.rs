//! Prometheus' text format (version 0.0.4), read strictly.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// The labels of a sample.
pub(super) type Labels = BTreeMap<String, String>;

/// A metric of a page.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) kind: String,
    /// Name, labels, value.
    pub(super) samples: Vec<(String, Labels, f64)>,
}

/// A page by the names of its metrics.
#[derive(Debug, Default)]
pub(super) struct Page(pub(super) BTreeMap<String, Family>);

fn is_name(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':');
    first && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn number(text: &str) -> Result<f64> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        "-Inf" => Ok(f64::NEG_INFINITY),
        "NaN" => Ok(f64::NAN),
        _ => {
            ensure!(!text.contains(['i', 'n', 'N', 'I', '_']), "{text} is no number");
            text.parse().with_context(|| format!("{text} is no number"))
        }
    }
}

/// Reads `name="value",…}` after the brace; answers what follows the closing one.
fn labels(mut rest: &str) -> Result<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        let (name, after) = rest.split_once("=\"").context("a label without a value")?;
        ensure!(is_name(name) && !name.contains(':'), "{name:?} is no label");
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            let (at, c) = chars.next().context("a value without an end")?;
            match c {
                '"' => break at,
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => value.push('\n'),
                    Some(c @ ('\\' | '"')) => value.push(c),
                    other => bail!("{other:?} cannot be escaped"),
                },
                c => value.push(c),
            }
        };
        ensure!(labels.insert(name.to_owned(), value).is_none(), "{name} stands twice");
        rest = &after[end + 1..];
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        rest = rest.strip_prefix(',').context("a label is not followed by another one")?;
    }
}

fn sample(line: &str) -> Result<(String, Labels, f64)> {
    let end = line.find(['{', ' ']).context("a sample without a value")?;
    let (name, rest) = line.split_at(end);
    ensure!(is_name(name), "{name:?} is no name");
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let mut fields = rest.strip_prefix(' ').context("no space before the value")?.split(' ');
    let value = number(fields.next().unwrap_or_default())?;
    if let Some(time) = fields.next() {
        time.parse::<i64>().with_context(|| format!("{time} is no time"))?;
    }
    ensure!(fields.next().is_none(), "more than a value and a time");
    Ok((name.to_owned(), labels, value))
}

/// Checks the buckets of a histogram's series.
fn histogram(name: &str, family: &Family) -> Result<()> {
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts: BTreeMap<Labels, f64> = BTreeMap::new();
    for (of, labels, value) in &family.samples {
        let mut labels = labels.clone();
        let bound = labels.remove("le");
        if of.ends_with("_bucket") {
            let bound = number(&bound.context("a bucket without a bound")?)?;
            series.entry(labels).or_default().push((bound, *value));
        } else if of.ends_with("_count") {
            counts.insert(labels, *value);
        }
    }
    ensure!(series.len() == counts.len(), "{name}: not every series has both");
    for (labels, buckets) in series {
        let ascending = buckets.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        let (bound, last) = buckets.last().copied().unwrap_or_default();
        ensure!(ascending && bound == f64::INFINITY, "{name} {labels:?} {buckets:?}");
        ensure!(counts.get(&labels) == Some(&last), "{name} {labels:?}: the last bucket is not the count");
    }
    Ok(())
}

impl Page {
    /// Reads a page. Each metric stands together, with its help and type before its samples; no sample stands twice.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut page = Self::default();
        let (mut current, mut helped) = (String::new(), None);
        let mut seen = BTreeSet::new();
        ensure!(text.ends_with('\n'), "the last line has no end");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').context("a help without a text")?;
                ensure!(is_name(name) && !help.is_empty() && helped.is_none(), "{line}");
                helped = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').context("a type without a name")?;
                ensure!(matches!(kind, "counter" | "gauge" | "histogram" | "summary" | "untyped"), "{line}");
                ensure!(helped.take().as_deref() == Some(name), "{name} has no help before its type");
                let new = Family { kind: kind.to_owned(), samples: Vec::new() };
                ensure!(page.0.insert(name.to_owned(), new).is_none(), "{name} stands twice");
                name.clone_into(&mut current);
            } else {
                let (name, labels, value) = sample(line).with_context(|| line.to_owned())?;
                let family = page.0.get_mut(&current).context("a sample before any type")?;
                let rest =
                    name.strip_prefix(current.as_str()).with_context(|| format!("{line} below {current}"))?;
                let fits = match family.kind.as_str() {
                    "histogram" => matches!(rest, "_bucket" | "_sum" | "_count"),
                    _ => rest.is_empty(),
                };
                ensure!(fits, "{line} is no {}", family.kind);
                ensure!(family.kind != "counter" || value >= 0.0, "{line} is below zero");
                ensure!(seen.insert((name.clone(), labels.clone())), "{line} stands twice");
                family.samples.push((name, labels, value));
            }
        }
        for (name, family) in page.0.iter().filter(|(_, f)| f.kind == "histogram") {
            histogram(name, family)?;
        }
        Ok(page)
    }

    /// The values of a sample that has all these labels.
    pub(super) fn values<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = f64> + 'a {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|s| self.0.get(name.strip_suffix(s)?));
        let samples = self.0.get(name).or(family).map(|f| f.samples.iter()).into_iter().flatten();
        let has =
            move |of: &Labels| labels.iter().all(|(key, value)| of.get(*key).is_some_and(|v| v == value));
        samples.filter(move |(of, all, _)| of == name && has(all)).map(|(_, _, value)| *value)
    }

    /// The sum of all of them; none if there is none.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.values(name, labels).reduce(|a, b| a + b)
    }
}

#[test]
fn the_parser_is_strict() {
    let good = "# HELP a A.\n# TYPE a counter\na{x=\"1\\\"\\n\"} 1 5\na 2\n# HELP h H.\n# TYPE h histogram\n\
        h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
    let page = Page::parse(good).unwrap();
    assert_eq!(
        (page.sum("a", &[]), page.sum("a", &[("x", "1\"\n")]), page.sum("h_count", &[])),
        (Some(3.0), Some(1.0), Some(2.0))
    );
    for bad in [
        "a 1\n",
        "# HELP a A.\n# TYPE a counter\na 1",
        "# TYPE a counter\na 1\n",
        "# HELP a A.\n# TYPE a counter\nb 1\n",
        "# HELP a A.\n# TYPE a counter\na -1\n",
        "# HELP a A.\n# TYPE a counter\na 1\na 1\n",
        "# HELP a A.\n# TYPE a gauge\na inf\n",
        "# HELP a A.\n# TYPE a gauge\na{x=\"\\t\"} 1\n",
        "# HELP a A.\n# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n",
        "# HELP a A.\n# TYPE a gauge\na 1 2 3\n",
        "# HELP a A.\n# TYPE a kind\na 1\n",
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 3\nh_count 1\n",
    ] {
        assert!(Page::parse(bad).is_err(), "{bad}");
    }
}
