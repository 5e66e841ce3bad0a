//! Levels by the modules of the program: `info`, `warn,ferrokube_kubelet=debug`.

use std::str::FromStr;

use tracing::Level;
use tracing::level_filters::LevelFilter;

/// The levels up to which lines are written. Without any, warnings and errors are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    usual: LevelFilter,
    /// The beginnings of targets, the longest first.
    of: Vec<(String, LevelFilter)>,
}

/// A part of the text is neither a level nor a target with one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a level (off, error, warn, info, debug, trace) nor TARGET=LEVEL")]
pub struct LevelError(String);

impl Default for Levels {
    fn default() -> Self {
        Self { usual: LevelFilter::WARN, of: Vec::new() }
    }
}

impl FromStr for Levels {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let mut levels = Self { usual: LevelFilter::OFF, of: Vec::new() };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let level = |text: &str| {
                let text = Some(text.trim()).filter(|text| !text.is_empty());
                text.and_then(|text| text.parse().ok()).ok_or_else(|| LevelError(part.to_owned()))
            };
            match part.split_once('=') {
                Some((target, text)) => levels.of.push((target.trim().to_owned(), level(text)?)),
                None => match part.parse() {
                    Ok(level) => levels.usual = level,
                    // A target alone is written whole.
                    Err(_) if is_target(part) => levels.of.push((part.to_owned(), LevelFilter::TRACE)),
                    Err(_) => return Err(LevelError(part.to_owned())),
                },
            }
        }
        levels.of.sort_by_key(|(target, _)| std::cmp::Reverse(target.len()));
        Ok(levels)
    }
}

/// The verbosity of a level.
pub(super) fn verbosity(level: Level) -> u32 {
    match level {
        Level::ERROR | Level::WARN => 0,
        Level::INFO => 2,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// Whether a text is the path of a module.
fn is_target(text: &str) -> bool {
    text.contains('_') && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

impl Levels {
    /// Whether a line of a target is written.
    pub(super) fn show(&self, level: Level, target: &str) -> bool {
        let of = self.of.iter().find(|(start, _)| target.starts_with(start.as_str()));
        level <= of.map_or(self.usual, |(_, level)| *level)
    }

    /// The highest level of all.
    pub(super) fn most(&self) -> LevelFilter {
        self.of.iter().map(|(_, level)| *level).fold(self.usual, LevelFilter::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, (level, target): (Level, &str), expected: bool) {
        let levels: Levels = text.parse().unwrap();
        assert_eq!(levels.show(level, target), expected, "{text} {level} {target}");
    }

    #[test]
    fn the_longest_beginning_counts() {
        check("info", (Level::INFO, "a"), true);
        check("info", (Level::DEBUG, "a"), false);
        check("", (Level::ERROR, "a"), false);
        check("OFF,a::b=warn", (Level::WARN, "a::b::c"), true);
        check("off,a::b=warn", (Level::WARN, "a::c"), false);
        check("warn, a=debug, a::b=error", (Level::WARN, "a::b"), false);
        check("a::b=error,warn,a=debug", (Level::DEBUG, "a::c"), true);
        check("ferrokube_kubelet", (Level::TRACE, "ferrokube_kubelet::node"), true);
        assert!(Levels::default().show(Level::WARN, "a") && !Levels::default().show(Level::INFO, "a"));
    }

    #[test]
    fn other_words_are_told() {
        for wrong in ["loud", "a=loud", "info,a="] {
            assert!(wrong.parse::<Levels>().is_err(), "{wrong}");
        }
    }
}
