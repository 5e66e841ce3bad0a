//! The flags by which metrics are chosen, by upstream's names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use clap::Args;
use component::Shown;
use component::shown::Choice;

/// The flags of metrics.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct Metrics {
    /// Metrics that are not shown, by their full names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disabled_metrics: Vec<String>,
    /// Values that a label may have, as METRIC,LABEL=VALUE,VALUE: all others are shown as `unexpected`; may be given
    /// several times
    #[arg(long, value_name = "VALUES")]
    allow_metric_labels: Vec<String>,
    /// File of such values: a line of YAML for each METRIC,LABEL
    #[arg(long, value_name = "FILE")]
    allow_metric_labels_manifest: Option<PathBuf>,
    /// The release before this one, to see the metrics that this one hides
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    show_hidden_metrics_for_version: String,
}

impl Metrics {
    /// The metrics that are shown.
    ///
    /// # Errors
    /// In upstream's words, if the flags or the file cannot be used.
    pub(crate) fn shown(&self) -> Result<Shown> {
        let mut allowed = BTreeMap::new();
        for text in &self.allow_metric_labels {
            allowed.extend(pairs(text).with_context(|| format!("invalid --allow-metric-labels {text:?}"))?);
        }
        let manifest = self.allow_metric_labels_manifest.as_deref();
        if let Some(file) = manifest.filter(|file| !file.as_os_str().is_empty()) {
            if !allowed.is_empty() {
                bail!("metrics: cannot specify both allowListMapping and allowListMappingManifest");
            }
            allowed = of_file(file)?;
        }
        Shown::new(Choice {
            // An empty text is no name.
            disabled: if self.disabled_metrics == [""] { Vec::new() } else { self.disabled_metrics.clone() },
            allowed,
            hidden_for: self.show_hidden_metrics_for_version.clone(),
        })
        .map_err(Error::msg)
    }
}

/// Reads pairs as pflag does: one pair is taken as it is, several are separated by commas, and one that has a comma
/// itself is in quotation marks then.
fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let parts = match text.matches('=').count() {
        0 => bail!("{text} must be formatted as key=value"),
        1 => vec![text.trim_matches('"').to_owned()],
        _ => fields(text),
    };
    let pair = |part: String| {
        let (key, value) =
            part.split_once('=').ok_or_else(|| anyhow!("{part} must be formatted as key=value"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    parts.into_iter().map(pair).collect()
}

/// The fields of a line of comma-separated values; a doubled quotation mark within a field is one.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    all.push(field);
    all
}

/// The values of a file.
fn of_file(file: &Path) -> Result<BTreeMap<String, String>> {
    let about =
        || format!("metrics.allowListMappingManifest: Invalid value: {:?}", file.display().to_string());
    let text = std::fs::read(file).context("failed to read allow list manifest").with_context(about)?;
    let wrong = || anyhow!("failed to parse allow list manifest: every METRIC,LABEL must have a text");
    let tree = api::yaml::parse(&text).context("failed to parse allow list manifest").with_context(about)?;
    let map = tree.as_map().ok_or_else(wrong).with_context(about)?;
    let entry = |(key, value): (&api::Text, &api::Node)| match value {
        api::Node::Str(values) => Ok((key.to_string(), values.to_string())),
        _ => Err(wrong()),
    };
    map.iter().map(entry).collect::<Result<_>>().with_context(about)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE m counter\nm{a=\"1\",b=\"x\"} 1\nm{a=\"2\",b=\"y\"} 2\n# TYPE n gauge\nn 3\n";

    /// The page's values by flags.
    fn page(metrics: &Metrics) -> Result<String> {
        let shown = metrics.shown()?.apply(PAGE.to_owned());
        let values = shown.lines().filter(|line| line.starts_with(['m', 'n']));
        Ok(values.collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn flags_choose() {
        let check = |metrics: Metrics, want: Result<&str, &str>| {
            let got = page(&metrics).map_err(|e| format!("{e:#}"));
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{metrics:?}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{got}"),
                (got, want) => panic!("{got:?} instead of {want:?}"),
            }
        };
        let labels = |all: &[&str]| Metrics {
            allow_metric_labels: all.iter().map(|text| (*text).to_owned()).collect(),
            ..Metrics::default()
        };
        let disabled = vec!["m".to_owned()];
        check(Metrics { disabled_metrics: disabled, ..Metrics::default() }, Ok("n 3"));
        check(labels(&["m,a=1,9"]), Ok("m{a=\"1\",b=\"x\"} 1; m{a=\"unexpected\",b=\"y\"} 2; n 3"));
        let merged = "m{a=\"unexpected\",b=\"unexpected\"} 3; n 3";
        check(labels(&["m,a=9", "m,b=8"]), Ok(merged));
        check(labels(&["\"m,a=9\",\"m,b=8,7\""]), Ok(merged));
        check(labels(&["m,a"]), Err("must be formatted as key=value"));
        check(labels(&["m=1"]), Err("must have keys with format"));
        let hidden = |version: &str| Metrics {
            show_hidden_metrics_for_version: version.to_owned(),
            ..Metrics::default()
        };
        check(hidden("1.35"), Ok("m{a=\"1\",b=\"x\"} 1; m{a=\"2\",b=\"y\"} 2; n 3"));
        check(hidden("1.34"), Err("metrics.showHiddenMetricsForVersion: Invalid value: \"1.34\""));
        let file = tempfile::NamedTempFile::new().unwrap();
        let with = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Metrics { allow_metric_labels_manifest: Some(file.path().to_owned()), ..Metrics::default() }
        };
        check(with("\"m,a\": \"9\"\n\"m,b\": \"\"\n"), Ok(merged));
        check(with("\"m,a\": [9]\n"), Err("failed to parse allow list manifest"));
        check(with("m: a"), Err("must have keys with format"));
        let both = Metrics { allow_metric_labels: vec!["m,a=1".to_owned()], ..with("\"m,a\": \"1\"\n") };
        check(both, Err("cannot specify both allowListMapping and allowListMappingManifest"));
        let missing = Metrics { allow_metric_labels_manifest: Some("/nowhere".into()), ..Metrics::default() };
        check(missing, Err("failed to read allow list manifest"));
    }
}
