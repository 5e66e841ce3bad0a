//! Handlers: the OCI runtimes that make the containers of Pods that ask for one by its name (RuntimeClass).

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;

use containers::{OciFeatures, OciRuntime};

/// A handler: its name, and the program that is the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// The name, as a RuntimeClass has it.
    pub name: String,
    /// The runtime.
    pub runtime: OciRuntime,
}

/// A handler with what its runtime can do.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) handler: Handler,
    pub(crate) features: OciFeatures,
}

/// The reason for which a text names no handler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no handler: it needs NAME=PROGRAM, a name of lowercase letters, digits and '-', and an absolute path"
)]
pub struct ParseError(String);

impl FromStr for Handler {
    type Err = ParseError;

    /// Reads `NAME=PROGRAM`, with arguments behind the program, separated by spaces.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError(text.to_owned());
        let (name, command) = text.split_once('=').ok_or_else(wrong)?;
        let mut words = command.split_ascii_whitespace().map(str::to_owned);
        let program = words.next().map(PathBuf::from).filter(|path| path.is_absolute()).ok_or_else(wrong)?;
        // The names that a RuntimeClass may have as its handler: those of DNS labels.
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edge = |c: Option<char>| c.is_some_and(|c| inner(c) && c != '-');
        let named = name.len() <= 63 && name.chars().all(inner);
        if !named || !edge(name.chars().next()) || !edge(name.chars().next_back()) {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), runtime: OciRuntime { program, arguments: words.collect() } })
    }
}

impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.runtime.program.display())?;
        self.runtime.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

impl Handler {
    /// Looks whether its program can be executed, and asks it what it can do.
    pub(crate) async fn look(self) -> io::Result<Known> {
        let found = fs::metadata(&self.runtime.program)?;
        if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
            return Err(io::Error::other("it is no program that can be executed"));
        }
        let features = self.runtime.features().await.unwrap_or_else(|error| {
            // Older ones do not know the question.
            tracing::info!(handler = self.name, %error, "the runtime does not tell what it can do");
            OciFeatures::default()
        });
        Ok(Known { handler: self, features })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_of_flags() {
        let check = |text: &str, expected: Option<(&str, &str, &[&str])>| {
            let found = text.parse::<Handler>().ok();
            let seen = found.as_ref().map(|h| {
                let arguments: Vec<&str> = h.runtime.arguments.iter().map(String::as_str).collect();
                (h.name.clone(), h.runtime.program.display().to_string(), arguments)
            });
            let expected = expected.map(|(n, p, a)| (n.to_owned(), p.to_owned(), a.to_vec()));
            assert_eq!(seen, expected, "{text}");
            if let Some(found) = found {
                assert_eq!(found.to_string().parse(), Ok(found));
            }
        };
        check("runc=/usr/sbin/runc", Some(("runc", "/usr/sbin/runc", &[])));
        check(
            "gvisor=/usr/bin/runsc --platform=systrap  --debug",
            Some(("gvisor", "/usr/bin/runsc", &["--platform=systrap", "--debug"])),
        );
        for wrong in ["", "runc", "=/bin/runc", "runc=", "runc=runc", "Runc=/r", "-a=/r", "a-=/r", "a.b=/r"] {
            check(wrong, None);
        }
    }
}
