//! The files that rules read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::tokens::{Comment, Kind, Token, read};

/// A checkout, or a fixture in its place: texts by path from the root, with `/`.
#[derive(Debug)]
pub struct Workspace {
    texts: BTreeMap<String, String>,
    files: Vec<File>,
}

/// A file of Rust.
#[derive(Debug)]
pub struct File {
    /// The file's path from the root: `crates/api/src/lib.rs`.
    pub path: String,
    /// The file's tokens, without comments.
    pub tokens: Vec<Token>,
    /// The lines of the file's comments.
    pub comments: Vec<Comment>,
    /// Whether the whole file is only compiled for tests.
    pub test: bool,
}

impl Workspace {
    /// Reads a checkout: the files below `crates`, `tools` and `xtask`, and the pages in the root.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut texts = BTreeMap::new();
        for entry in std::fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() && Path::new(&name).extension().is_some() {
                read_text(&entry.path(), name, &mut texts)?;
            }
        }
        for dir in ["crates", "tools", "xtask"] {
            walk(&root.join(dir), dir, &mut texts)?;
        }
        Ok(Self::new(texts))
    }

    /// A workspace of these files.
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    fn new(texts: BTreeMap<String, String>) -> Self {
        let mut files: Vec<File> = texts
            .iter()
            .filter(|(path, _)| Path::new(path).extension().is_some_and(|e| e == "rs"))
            .map(|(path, text)| {
                let (tokens, comments) = read(text);
                File { path: path.clone(), tokens, comments, test: !path.contains("/src/") }
            })
            .collect();
        let tests: Vec<String> = files.iter().flat_map(test_modules).collect();
        for file in &mut files {
            file.test |= tests
                .iter()
                .any(|t| file.path == format!("{t}.rs") || file.path.starts_with(&format!("{t}/")));
        }
        Self { texts, files }
    }

    /// The text of a file, Rust or not.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Every path, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }

    /// The files of Rust below a directory (`crates/api`), sorted.
    pub fn files(&self, below: &str) -> impl Iterator<Item = &File> + use<'_> {
        let below = format!("{below}/");
        self.files.iter().filter(move |f| f.path.starts_with(&below))
    }

    /// All files of Rust, sorted.
    pub fn all_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// The names of the crates below `crates`, sorted.
    pub fn crates(&self) -> impl Iterator<Item = &str> {
        self.paths()
            .filter_map(|p| p.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
            .filter(|p| !p.contains('/'))
    }
}

impl File {
    /// The tokens of the code that is compiled without tests.
    pub fn code(&self) -> Vec<&Token> {
        if self.test {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(self.tokens.len());
        let mut at = 0;
        while at < self.tokens.len() {
            if is_cfg_test(&self.tokens[at..]) {
                at += CFG_TEST.len();
                at += item(&self.tokens[at..]);
            } else {
                out.push(&self.tokens[at]);
                at += 1;
            }
        }
        out
    }

    /// The directory and stem below which the modules lie that this file declares.
    fn below(&self) -> &str {
        let path = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        ["/mod", "/lib", "/main"].iter().find_map(|root| path.strip_suffix(root)).unwrap_or(path)
    }
}

const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

fn is_cfg_test(tokens: &[Token]) -> bool {
    tokens.len() >= CFG_TEST.len() && CFG_TEST.iter().zip(tokens).all(|(want, have)| have.text == *want)
}

/// The number of tokens of the item that begins here: to its `;`, or to the end of its braces.
fn item(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate() {
        match (token.kind, token.text.as_str()) {
            (Kind::Punctuation, "{" | "(" | "[") => depth += 1,
            (Kind::Punctuation, close @ ("}" | ")" | "]")) => {
                depth = depth.saturating_sub(1);
                if depth == 0 && close == "}" {
                    return i + 1;
                }
            }
            (Kind::Punctuation, ";") if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Paths, without ending, of the modules that a file declares for tests only.
fn test_modules(file: &File) -> Vec<String> {
    (0..file.tokens.len())
        .filter(|at| is_cfg_test(&file.tokens[*at..]))
        .filter_map(|at| {
            let mut rest = file.tokens[at + CFG_TEST.len()..].iter().map(|t| t.text.as_str());
            let (module, name, end) = (rest.next()?, rest.next()?, rest.next()?);
            (module == "mod" && end == ";").then(|| format!("{}/{name}", file.below()))
        })
        .collect()
}

fn walk(dir: &Path, name: &str, out: &mut BTreeMap<String, String>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = format!("{name}/{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.file_name() != "node_modules" {
            walk(&entry.path(), &path, out)?;
        } else if kind.is_file() {
            read_text(&entry.path(), path, out)?;
        }
    }
    Ok(())
}

/// Keeps a file if it is text.
fn read_text(from: &Path, path: String, out: &mut BTreeMap<String, String>) -> io::Result<()> {
    if let Ok(text) = String::from_utf8(std::fs::read(from)?) {
        out.insert(path, text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_tests_alone_see() {
        let workspace = Workspace::of(&[
            ("crates/a/Cargo.toml", ""),
            (
                "crates/a/src/lib.rs",
                "mod b; #[cfg(test)] mod cases; fn f() {} #[cfg(test)] mod tests { fn g() {} } fn h() {}",
            ),
            ("crates/a/src/b.rs", "#[cfg(test)] use c::d; fn i() {}"),
            ("crates/a/src/cases.rs", "fn j() {}"),
            ("crates/a/src/cases/more.rs", "fn k() {}"),
            ("crates/a/tests/it/main.rs", "fn l() {}"),
        ]);
        let code: Vec<String> = workspace
            .files("crates/a")
            .map(|f| f.code().iter().map(|t| t.text.as_str()).collect::<Vec<_>>().join(""))
            .collect();
        assert_eq!(code, ["fni(){}", "", "", "modb;fnf(){}fnh(){}", ""]);
        assert_eq!(workspace.crates().collect::<Vec<_>>(), ["a"]);
    }
}
