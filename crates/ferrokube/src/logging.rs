//! Upstream's LoggingConfiguration: a component's flags of the log, and the field `logging` of its configuration file.

use anyhow::{Result, bail};
use api::FeatureGates;
use api::gate::Gate;
use api::quantity::Quantity;
use component::logging::vmodule::Module;
use component::logging::{Config, Format, Routing};
use jiff::SignedDuration;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::cli;

/// The settings as a file or flags have them; what is not there is upstream's default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct LoggingConfiguration {
    format: Option<String>,
    flush_frequency: Option<Flush>,
    verbosity: Option<u32>,
    vmodule: Vec<Item>,
    options: Options,
}

/// A duration as Go writes it, or a number of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flush(SignedDuration);

impl<'de> Deserialize<'de> for Flush {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Nanos(i64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Nanos(nanos) => Ok(Self(SignedDuration::from_nanos(nanos))),
            Either::Text(text) => {
                let wrong = || D::Error::custom(format!("{text:?} is no duration such as 1m30s"));
                api::time::parse_duration(&text).map(Self).ok_or_else(wrong)
            }
        }
    }
}

/// A verbosity of files.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Item {
    file_pattern: String,
    verbosity: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    text: OutputRoutingOptions,
    json: OutputRoutingOptions,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct OutputRoutingOptions {
    split_stream: bool,
    #[serde(deserialize_with = "bytes")]
    info_buffer_size: i64,
}

/// A quantity, which may be written as a number.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    Quantity::parse(&text).map(|quantity| quantity.value()).map_err(D::Error::custom)
}

impl OutputRoutingOptions {
    fn routing(&self) -> Routing {
        Routing {
            split: self.split_stream,
            buffer: usize::try_from(self.info_buffer_size).unwrap_or_default(),
        }
    }

    /// The options that upstream refuses at a path: they are alpha.
    fn faults(&self, at: &str, gates: FeatureGates) -> Vec<String> {
        let closed = !gates.enabled(Gate::LoggingAlphaOptions);
        let fault = |used: bool, field: &str| {
            (closed && used)
                .then(|| format!("{at}.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"))
        };
        let split = fault(self.split_stream, "splitStream");
        split.into_iter().chain(fault(self.info_buffer_size != 0, "infoBufferSize")).collect()
    }
}

/// Upstream's default of the time between two flushes.
const FLUSH: SignedDuration = SignedDuration::from_secs(5);
/// The greatest verbosity.
const MOST: u32 = i32::MAX as u32;

impl LoggingConfiguration {
    /// With the flags over it. As upstream's, a flag of files adds to those that are there.
    pub(crate) fn with(mut self, flags: &cli::Logging) -> Self {
        self.format = flags.logging_format.clone().or(self.format);
        self.flush_frequency = flags.log_flush_frequency.map(Flush).or(self.flush_frequency);
        self.verbosity = flags.v.or(self.verbosity);
        let items = flags.vmodule.iter().flat_map(|modules| modules.0.clone());
        self.vmodule.extend(items.map(|m| Item { file_pattern: m.pattern, verbosity: m.verbosity }));
        for (options, split, size) in [
            (&mut self.options.text, flags.log_text_split_stream, flags.log_text_info_buffer_size),
            (&mut self.options.json, flags.log_json_split_stream, flags.log_json_info_buffer_size),
        ] {
            options.split_stream = split.unwrap_or(options.split_stream);
            options.info_buffer_size = size.unwrap_or(options.info_buffer_size);
        }
        self
    }

    fn format(&self) -> &str {
        self.format.as_deref().filter(|format| !format.is_empty()).unwrap_or("text")
    }

    fn flush(&self) -> SignedDuration {
        self.flush_frequency.map(|flush| flush.0).filter(|time| !time.is_zero()).unwrap_or(FLUSH)
    }

    /// The faults that upstream finds, in its words; `at` is the field in the file, "" for flags.
    pub(crate) fn faults(&self, at: &str, gates: FeatureGates) -> Vec<String> {
        let path = |field: &str| if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") };
        let mut faults = Vec::new();
        if !self.flush().is_positive() {
            let nanos = self.flush().as_nanos();
            faults.push(format!(
                "{}: Invalid value: {nanos}: Must be greater than zero",
                path("flushFrequency")
            ));
        }
        let (format, field) = (self.format(), path("format"));
        match format {
            "text" => {}
            "json" if gates.enabled(Gate::LoggingBetaOptions) => {}
            "json" => faults.push(format!(
                "{field}: Forbidden: Log format json is disabled, see LoggingBetaOptions feature"
            )),
            _ => faults.push(format!("{field}: Invalid value: {format:?}: Unsupported log format")),
        }
        let too_much = |field: &str, n: u32| format!("{field}: Invalid value: {n}: Must be <= {MOST}");
        faults.extend(self.verbosity.filter(|n| *n > MOST).map(|n| too_much(&path("verbosity"), n)));
        if !self.vmodule.is_empty() && format != "text" {
            faults.push(format!("{}: Forbidden: Only supported for text log format", path("vmodule")));
        }
        for (i, item) in self.vmodule.iter().enumerate() {
            let (field, pattern) = (path(&format!("vmodule[{i}]")), &item.file_pattern);
            if pattern.is_empty() {
                faults.push(format!("{field}: Required value: File pattern must not be empty"));
            }
            if pattern.contains(['=', ',']) {
                faults.push(format!(
                    "{field}: Invalid value: {pattern:?}: File pattern must not contain equal sign or comma"
                ));
            }
            if item.verbosity > MOST {
                faults.push(too_much(&field, item.verbosity));
            }
        }
        faults.extend(self.options.text.faults(&path("options.text"), gates));
        faults.extend(self.options.json.faults(&path("options.json"), gates));
        faults
    }

    /// The settings of the log.
    pub(crate) fn config(&self) -> Config {
        let module = |item: &Item| Module { pattern: item.file_pattern.clone(), verbosity: item.verbosity };
        Config {
            format: if self.format() == "json" { Format::Json } else { Format::Text },
            verbosity: self.verbosity.unwrap_or_default(),
            vmodule: self.vmodule.iter().map(module).collect(),
            flush: self.flush().unsigned_abs(),
            text: self.options.text.routing(),
            json: self.options.json.routing(),
        }
    }
}

/// Gives the log of the process a component's settings: those of its file, with its flags over them.
///
/// # Errors
/// Upstream refuses the settings.
pub(crate) fn apply(file: LoggingConfiguration, flags: &cli::Logging, gates: FeatureGates) -> Result<()> {
    let settings = file.with(flags);
    match settings.faults("", gates).as_slice() {
        [] => component::logging::apply(&settings.config()),
        [one] => bail!("{one}"),
        all => bail!("[{}]", all.join(", ")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn gates(settings: &[&str]) -> FeatureGates {
        FeatureGates::parse(settings.iter().copied()).unwrap()
    }

    fn check(yaml: &str, (at, features): (&str, &[&str]), expected: &str) {
        let settings: LoggingConfiguration = serde_json::from_str(yaml).expect(yaml);
        let faults = settings.faults(at, gates(features));
        let got = if faults.len() > 1 { format!("[{}]", faults.join(", ")) } else { faults.concat() };
        assert_eq!(got, expected, "{yaml}");
    }

    /// Upstream's cases (`validate_test.go`); the format json is there always, as in its components.
    #[test]
    fn upstreams_cases() {
        check(
            r#"{"verbosity": 10, "vmodule": [{"filePattern": "gopher*", "verbosity": 100}]}"#,
            ("", &[]),
            "",
        );
        let other = r#"{"format": "no-such-format"}"#;
        check(other, ("", &[]), "format: Invalid value: \"no-such-format\": Unsupported log format");
        check(
            other,
            ("config", &[]),
            "config.format: Invalid value: \"no-such-format\": Unsupported log format",
        );
        check(
            r#"{"verbosity": 2147483648}"#,
            ("", &[]),
            "verbosity: Invalid value: 2147483648: Must be <= 2147483647",
        );
        check(
            r#"{"vmodule": [{"filePattern": "gopher*", "verbosity": 2147483648}]}"#,
            ("", &[]),
            "vmodule[0]: Invalid value: 2147483648: Must be <= 2147483647",
        );
        check(
            r#"{"vmodule": [{"filePattern": "", "verbosity": 1}]}"#,
            ("", &[]),
            "vmodule[0]: Required value: File pattern must not be empty",
        );
        check(
            r#"{"vmodule": [{"filePattern": "foo,bar", "verbosity": 1}, {"filePattern": "foo=bar", "verbosity": 1}]}"#,
            ("", &[]),
            "[vmodule[0]: Invalid value: \"foo,bar\": File pattern must not contain equal sign or comma, vmodule[1]: Invalid value: \"foo=bar\": File pattern must not contain equal sign or comma]",
        );
        check(
            r#"{"format": "json", "vmodule": [{"filePattern": "foo", "verbosity": 1}]}"#,
            ("", &[]),
            "vmodule: Forbidden: Only supported for text log format",
        );
        let options = r#"{"options": {"json": {"splitStream": true, "infoBufferSize": 1024}}}"#;
        let closed = "[options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled, options.json.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled]";
        check(options, ("", &[]), closed);
        check(options, ("", &["LoggingAlphaOptions=false", "LoggingBetaOptions=false"]), closed);
        check(options, ("", &["LoggingAlphaOptions=true"]), "");
        let flush = "flushFrequency: Invalid value: -1000000000: Must be greater than zero";
        check(r#"{"flushFrequency": "-1s"}"#, ("", &[]), flush);
        check(r#"{"flushFrequency": -1000000000}"#, ("", &[]), flush);
        check(r#"{"flushFrequency": 0}"#, ("", &[]), "");
        check(
            r#"{"format": "json"}"#,
            ("logging", &["LoggingBetaOptions=false"]),
            "logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature",
        );
    }

    #[test]
    fn flags_count_more_than_the_file() {
        let file = r#"{"format": "json", "verbosity": 3, "flushFrequency": "1s",
            "vmodule": [{"filePattern": "a", "verbosity": 1}],
            "options": {"json": {"infoBufferSize": "64Ki"}, "text": {"splitStream": true}}}"#;
        let file: LoggingConfiguration = serde_json::from_str(file).unwrap();
        let of = |arguments: &[&str]| {
            let all = ["ferrokube", "kube-scheduler", "--kubeconfig=k"].iter().chain(arguments);
            let cli::Command::Scheduler(flags) = cli::Cli::parse_from(all).command else {
                panic!("another command")
            };
            file.clone().with(&flags.logging).config()
        };
        let module = |pattern: &str, verbosity| Module { pattern: pattern.to_owned(), verbosity };
        let of_file = Config {
            format: Format::Json,
            verbosity: 3,
            vmodule: vec![module("a", 1)],
            flush: std::time::Duration::from_secs(1),
            text: Routing { split: true, buffer: 0 },
            json: Routing { split: false, buffer: 65536 },
        };
        assert_eq!(of(&[]), of_file);
        let flags = [
            "-v4",
            "--logging-format=text",
            "--log-flush-frequency=2m",
            "--vmodule=b=2,c*=3",
            "--log-text-split-stream=false",
            "--log-json-split-stream",
            "--log-text-info-buffer-size=1M",
            "--log-json-info-buffer-size=0",
        ];
        let expected = Config {
            format: Format::Text,
            verbosity: 4,
            vmodule: vec![module("a", 1), module("b", 2), module("c*", 3)],
            flush: std::time::Duration::from_mins(2),
            text: Routing { split: false, buffer: 1_000_000 },
            json: Routing { split: true, buffer: 0 },
        };
        assert_eq!(of(&flags), expected);
        for spelled in [&["-v", "2"][..], &["-v=2"], &["--v=2"], &["--v", "2"]] {
            assert_eq!(of(spelled).verbosity, 2, "{spelled:?}");
        }
        assert_eq!(LoggingConfiguration::default().config(), Config::default());
    }

    #[test]
    fn unknown_fields_and_values_are_refused() {
        for wrong in [
            r#"{"sanitization": true}"#,
            r#"{"verbosity": -1}"#,
            r#"{"options": {"xml": {}}}"#,
            r#"{"flushFrequency": "soon"}"#,
            r#"{"options": {"json": {"infoBufferSize": "much"}}}"#,
        ] {
            assert!(serde_json::from_str::<LoggingConfiguration>(wrong).is_err(), "{wrong}");
        }
    }
}
