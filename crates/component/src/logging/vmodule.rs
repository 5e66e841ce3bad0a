//! Verbosity by files: upstream's `--vmodule=pattern=N,…`.

/// A verbosity of the files that a pattern fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// A file's name without its ending, in which `*`, `?` and `[…]` stand for others, as in Go's `filepath.Match`. A file
    /// `mod.rs` or `lib.rs` is called by its directory.
    pub pattern: String,
    /// The verbosity up to which its lines are written.
    pub verbosity: u32,
}

/// Reads upstream's flag.
///
/// # Errors
/// A part is no `pattern=N`, in upstream's words.
pub fn parse(text: &str) -> Result<Vec<Module>, String> {
    let part = |part: &str| {
        let form = || format!("{part:?} does not have the pattern=N format");
        let (pattern, number) = part.split_once('=').ok_or_else(form)?;
        if pattern.is_empty() || number.is_empty() || number.contains('=') {
            return Err(form());
        }
        let verbosity = number.parse::<u32>().ok().filter(|n| i32::try_from(*n).is_ok());
        let verbosity = verbosity.ok_or_else(|| {
            format!("parsing verbosity in {part:?}: {number:?} is no number below 2147483648")
        })?;
        Ok(Module { pattern: pattern.to_owned(), verbosity })
    };
    // A comma at the end is no part.
    text.split(',').filter(|part| !part.is_empty()).map(part).collect()
}

/// The verbosity of a file: that of the first pattern that fits.
pub(super) fn verbosity(modules: &[Module], file: Option<&str>) -> u32 {
    let Some(name) = file.filter(|_| !modules.is_empty()).and_then(name) else { return 0 };
    modules.iter().find(|module| fits(&module.pattern, name)).map_or(0, |module| module.verbosity)
}

/// The name of a file.
fn name(path: &str) -> Option<&str> {
    let mut parts = path.rsplit('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    parts.find(|part| !matches!(*part, "mod" | "lib" | "main" | "src"))
}

/// Whether a pattern fits the whole of a name. A pattern that is none fits nothing. The work is at most the product of
/// both lengths: only the last `*` is tried again.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut retry = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p, n));
            p += 1;
            continue;
        }
        if let Some(next) = one(&pattern, p, name[n]) {
            (p, n) = (next, n + 1);
            continue;
        }
        let Some((star, from)) = retry else { return false };
        retry = Some((star, from + 1));
        (p, n) = (star + 1, from + 1);
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Where the pattern goes on after its part at `p`, if that fits a character.
fn one(pattern: &[char], p: usize, c: char) -> Option<usize> {
    match pattern.get(p)? {
        '?' => Some(p + 1),
        '\\' => (pattern.get(p + 1) == Some(&c)).then_some(p + 2),
        '[' => {
            let mut at = p + 1;
            let negated = pattern.get(at) == Some(&'^');
            at += usize::from(negated);
            let (first, mut inside) = (at, false);
            while at == first || pattern.get(at) != Some(&']') {
                let (low, next) = literal(pattern, at)?;
                let (high, next) =
                    if pattern.get(next) == Some(&'-') { literal(pattern, next + 1)? } else { (low, next) };
                inside |= (low..=high).contains(&c);
                at = next;
            }
            (inside != negated).then_some(at + 1)
        }
        literal => (*literal == c).then_some(p + 1),
    }
}

/// A character of a class, and where the class goes on.
fn literal(pattern: &[char], at: usize) -> Option<(char, usize)> {
    match pattern.get(at)? {
        '\\' => Some((*pattern.get(at + 1)?, at + 2)),
        '-' | ']' => None,
        c => Some((*c, at + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_as_go_matches_them() {
        let check = |pattern: &str, name: &str, expected| {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        };
        // From Go's path/filepath, but for `/`, which no name has.
        check("abc", "abc", true);
        check("*", "abc", true);
        check("*c", "abc", true);
        check("a*", "a", true);
        check("a*", "abc", true);
        check("a*b*c*d*e*", "axbxcxdxe", true);
        check("a*b?c*x", "abxbbxdbxebxczzx", true);
        check("a*b?c*x", "abxbbxdbxebxczzy", false);
        check("ab[c]", "abc", true);
        check("ab[b-d]", "abc", true);
        check("ab[e-g]", "abc", false);
        check("ab[^c]", "abc", false);
        check("ab[^b-d]", "abc", false);
        check("ab[^e-g]", "abc", true);
        check("a\\*b", "a*b", true);
        check("a\\*b", "ab", false);
        check("a?b", "a☺b", true);
        check("a[^a]b", "a☺b", true);
        check("a???b", "a☺b", false);
        check("[a-ζ]*", "α", true);
        check("*[a-ζ]", "A", false);
        check("[\\]a]", "]", true);
        check("[\\-]", "-", true);
        check("[x\\-]", "z", false);
        check("[]a]", "]", false);
        check("[-]", "-", false);
        check("[a-b-c]", "a", false);
        check("[", "a", false);
        check("[^bc", "a", false);
        check("a[", "a", false);
        check("*x", "xxx", true);
        check("", "", true);
        check("", "a", false);
    }

    #[test]
    fn the_first_pattern_counts() {
        let check = |text: &str, file: &str, expected| {
            assert_eq!(verbosity(&parse(text).unwrap(), Some(file)), expected, "{text} {file}");
        };
        check("lease=4,lea*=9", "crates/kubelet/src/node/lease.rs", 4);
        check("lea*=9,lease=4,", "crates/kubelet/src/node/lease.rs", 9);
        check("node=3", "crates/kubelet/src/node/mod.rs", 3);
        check("kubelet=3", "crates/kubelet/src/lib.rs", 3);
        check("lease=4", "", 0);
        check("", "crates/kubelet/src/node/lease.rs", 0);
        assert_eq!(verbosity(&parse("*=1").unwrap(), None), 0);
    }

    #[test]
    fn flags_in_upstreams_form() {
        let check = |text: &str, expected: Result<&[(&str, u32)], &str>| {
            let expected: Result<Vec<_>, _> = expected
                .map(|all| {
                    all.iter().map(|(p, v)| Module { pattern: (*p).to_owned(), verbosity: *v }).collect()
                })
                .map_err(str::to_owned);
            assert_eq!(parse(text), expected, "{text}");
        };
        check("a=1,b*=2147483647,", Ok(&[("a", 1), ("b*", 2_147_483_647)]));
        check("", Ok(&[]));
        check("a", Err("\"a\" does not have the pattern=N format"));
        check("=1", Err("\"=1\" does not have the pattern=N format"));
        check("a=", Err("\"a=\" does not have the pattern=N format"));
        check("a=1=2", Err("\"a=1=2\" does not have the pattern=N format"));
        let large = "parsing verbosity in \"a=2147483648\": \"2147483648\" is no number below 2147483648";
        check("a=2147483648", Err(large));
        check("a=-1", Err("parsing verbosity in \"a=-1\": \"-1\" is no number below 2147483648"));
    }
}
