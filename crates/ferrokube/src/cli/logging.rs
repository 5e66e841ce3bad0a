//! The flags of a component's log, by upstream's names.

use api::quantity::Quantity;
use clap::Args;
use component::logging::vmodule::{self, Module};
use jiff::SignedDuration;

/// The flags of a component's log.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct Logging {
    /// Form of the log's lines: text, or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) logging_format: Option<String>,
    /// Verbosity of the log: from 2 on what the component does, from 4 on why [default: 0, which is errors and warnings]
    #[arg(short = 'v', long = "v", value_name = "N", value_parser = verbosity)]
    pub(crate) v: Option<u32>,
    /// Verbosity of single files of the source, as pattern=N, separated by commas; for text
    #[arg(long, value_name = "PATTERNS", value_parser = modules)]
    pub(crate) vmodule: Vec<Modules>,
    /// How long a line may be held back [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = signed, allow_hyphen_values = true)]
    pub(crate) log_flush_frequency: Option<SignedDuration>,
    /// Write errors as text to stderr, and everything else to stdout; alpha, behind LoggingAlphaOptions [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) log_text_split_stream: Option<bool>,
    /// How much text for stdout is held back, such as 64Ki; alpha, behind LoggingAlphaOptions [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) log_text_info_buffer_size: Option<i64>,
    /// Write errors as JSON to stderr, and everything else to stdout; alpha, behind LoggingAlphaOptions [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) log_json_split_stream: Option<bool>,
    /// How much JSON for stdout is held back, such as 64Ki; alpha, behind LoggingAlphaOptions [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) log_json_info_buffer_size: Option<i64>,
}

/// The patterns of one flag.
#[derive(Debug, Clone)]
pub(crate) struct Modules(pub(crate) Vec<Module>);

fn modules(text: &str) -> Result<Modules, String> {
    vmodule::parse(text).map(Modules)
}

fn verbosity(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| i32::try_from(*n).is_ok());
    number.ok_or_else(|| "not a number from 0 to 2147483647".to_owned())
}

fn signed(text: &str) -> Result<SignedDuration, String> {
    api::time::parse_duration(text).ok_or_else(|| "not a duration such as 5s".to_owned())
}

fn bytes(text: &str) -> Result<i64, String> {
    Quantity::parse(text).map(|quantity| quantity.value()).map_err(|e| e.to_string())
}
