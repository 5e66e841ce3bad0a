//! The log of the process: which of its lines are written, in which form, and where to.
//!
//! A component logs with `tracing`. Upstream's components choose lines by a verbosity; the levels of `tracing` stand for
//! those that upstream's conventions of logging give to the same lines: errors and warnings are always written, `INFO`
//! from `-v=2` on ("useful steady state information"), `DEBUG` from 4, `TRACE` from 5. Libraries have no verbosity, as with
//! upstream: what they say is chosen by [`Levels`] alone.
//!
//! There is one log in a process. It begins with [`start`], and [`apply`] gives it the settings of a component, which may
//! be known later: from a file. The forms are upstream's: klog's text and the JSON of component-base.

mod levels;
mod line;
mod output;
pub mod vmodule;

use std::time::Duration;

use parking_lot::RwLock;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

pub use self::levels::{LevelError, Levels};
pub use self::line::Format;
pub use self::output::Routing;
pub use self::vmodule::Module;

use self::levels::verbosity;
use self::line::Line;
use self::output::Output;

/// The settings of a log, as upstream's LoggingConfiguration has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The form of lines.
    pub format: Format,
    /// The verbosity up to which lines are written.
    pub verbosity: u32,
    /// The verbosity of files, by patterns; the first that fits counts, and never less than `verbosity`.
    pub vmodule: Vec<Module>,
    /// How long a line may be held back.
    pub flush: Duration,
    /// Where lines of text go.
    pub text: Routing,
    /// Where lines of JSON go.
    pub json: Routing,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            format: Format::Text,
            verbosity: 0,
            vmodule: Vec::new(),
            flush: FLUSH,
            text: Routing::default(),
            json: Routing::default(),
        }
    }
}

impl Config {
    /// The routing of the form that is used.
    fn routing(&self) -> Routing {
        match self.format {
            Format::Text => self.text,
            Format::Json => self.json,
        }
    }
}

/// Upstream's default of `--log-flush-frequency`.
const FLUSH: Duration = Duration::from_secs(5);

/// The beginning of the targets of this program's own lines.
const OWN: &str = "ferrokube";

/// Which lines are written.
#[derive(Debug, Default)]
struct Choice {
    levels: Levels,
    verbosity: u32,
    vmodule: Vec<Module>,
}

impl Choice {
    /// Whether a line of a target and a file is written.
    fn shows(&self, level: Level, target: &str, file: Option<&str>) -> bool {
        if self.levels.show(level, target) {
            return true;
        }
        // Errors and warnings are left to the levels: they may choose less.
        let wanted = verbosity(level);
        let own = target.starts_with(OWN);
        own && wanted > 0 && (wanted <= self.verbosity || wanted <= vmodule::verbosity(&self.vmodule, file))
    }

    /// The level from which on nothing is written.
    fn most(&self) -> tracing::level_filters::LevelFilter {
        let verbosity = self.vmodule.iter().map(|module| module.verbosity).fold(self.verbosity, u32::max);
        let by_verbosity = match verbosity {
            0 | 1 => tracing::level_filters::LevelFilter::OFF,
            2 | 3 => tracing::level_filters::LevelFilter::INFO,
            4 => tracing::level_filters::LevelFilter::DEBUG,
            _ => tracing::level_filters::LevelFilter::TRACE,
        };
        self.levels.most().max(by_verbosity)
    }
}

/// The log of the process.
struct Log {
    choice: RwLock<Option<Choice>>,
    output: RwLock<Option<Output>>,
}

static LOG: Log = Log { choice: RwLock::new(None), output: RwLock::new(None) };

/// The subscriber of the process; everything is in [`LOG`].
struct Everything;

impl Subscriber for Everything {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // The choice changes seldom, and everything is registered again then.
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let choice = LOG.choice.read();
        metadata.is_event()
            && choice.as_ref().is_some_and(|c| c.shows(*metadata.level(), metadata.target(), metadata.file()))
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        LOG.choice.read().as_ref().map(Choice::most)
    }

    fn event(&self, event: &Event<'_>) {
        let line = Line::of(event);
        LOG.write(&line);
    }

    // Nothing here has spans, and those of libraries are not enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Log {
    fn write(&self, line: &Line<'_>) {
        if let Some(output) = &*self.output.read() {
            output.write(line, jiff::Timestamp::now());
        }
    }
}

/// Begins the log of the process: text on stderr, of the levels that are named. A log that was begun before goes on with
/// these levels.
pub fn start(levels: Levels) {
    *LOG.choice.write() = Some(Choice { levels, ..Choice::default() });
    *LOG.output.write() = Some(Output::new(Format::Text, Routing::default()));
    if tracing::subscriber::set_global_default(Everything).is_err() {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Gives the log of the process a component's settings. The levels that it began with stay, too.
pub fn apply(config: &Config) {
    let routing = config.routing();
    {
        let mut choice = LOG.choice.write();
        let choice = choice.get_or_insert_default();
        choice.verbosity = config.verbosity;
        choice.vmodule.clone_from(&config.vmodule);
    }
    let before = LOG.output.write().replace(Output::new(config.format, routing));
    if let Some(output) = before {
        output.flush();
    }
    tracing::callsite::rebuild_interest_cache();
    if routing.split && routing.buffer > 0 {
        let period = config.flush;
        // Without the thread, lines are written when the buffer is full and at the end.
        let _ = std::thread::Builder::new().name("log-flush".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(period);
                flush();
            }
        });
    }
}

/// Writes what the log holds back.
pub fn flush() {
    if let Some(output) = &*LOG.output.read() {
        output.flush();
    }
}

/// The form of the log's lines.
pub fn format() -> Format {
    LOG.output.read().as_ref().map_or(Format::Text, Output::format)
}

/// Writes a line that says how the process goes on, whatever is chosen. It comes from no place in the program.
pub fn tell(message: &str) {
    LOG.write(&Line::told(Level::WARN, message));
}

#[cfg(test)]
mod tests {
    use tracing::level_filters::LevelFilter;

    use super::*;

    fn check(levels: &str, config: (u32, &str), asked: (Level, &str, &str), expected: bool) {
        let vmodule = if config.1.is_empty() { Vec::new() } else { vmodule::parse(config.1).unwrap() };
        let choice = Choice { levels: levels.parse().unwrap(), verbosity: config.0, vmodule };
        let (level, target, file) = asked;
        assert_eq!(choice.shows(level, target, Some(file)), expected, "{levels} {config:?} {asked:?}");
        assert!(
            !expected || LevelFilter::from_level(level) <= choice.most(),
            "{levels} {config:?} {asked:?}"
        );
    }

    #[test]
    fn lines_are_chosen_by_levels_and_verbosity() {
        let (target, file) = ("ferrokube_kubelet::node::lease", "crates/kubelet/src/node/lease.rs");
        let all = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        for (verbosity, shown) in [(0, 2), (1, 2), (2, 3), (3, 3), (4, 4), (5, 5), (10, 5)] {
            for (i, level) in all.into_iter().enumerate() {
                check("warn", (verbosity, ""), (level, target, file), i < shown);
            }
        }
        check("off", (4, ""), (Level::WARN, target, file), false);
        check("off", (4, ""), (Level::DEBUG, target, file), true);
        check("warn", (10, "*=10"), (Level::INFO, "h2::codec", "src/codec/framed_read.rs"), false);
        check("info", (0, ""), (Level::INFO, "h2::codec", "src/codec/framed_read.rs"), true);
        check("warn,ferrokube_kubelet=debug", (0, ""), (Level::DEBUG, target, file), true);
        check("warn,ferrokube_kubelet=debug", (0, ""), (Level::DEBUG, "ferrokube_api", file), false);
        check("warn", (0, "lease=4"), (Level::DEBUG, target, file), true);
        check("warn", (0, "lea*=4"), (Level::TRACE, target, file), false);
        check("warn", (2, "lease=0"), (Level::INFO, target, file), true);
        check("warn", (0, "other=9"), (Level::INFO, target, file), false);
    }
}
