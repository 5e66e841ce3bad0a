//! Reads the type declarations of a Go package: enough of the language for API types as gofmt
//! leaves them, and nothing more.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result};

/// A type expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    /// A name, qualified by the import alias if it is of another package.
    Name(Option<String>, String),
    /// `*T`
    Pointer(Box<Expr>),
    /// `[]T`
    List(Box<Expr>),
    /// `map[K]V`, whose keys are strings in JSON.
    Map(Box<Expr>, Box<Expr>),
    /// `interface{}` or `any`
    Interface,
}

/// A field as declared.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// Go name; the type's name for an embedded field.
    pub name: String,
    /// Whether the field is declared without a name.
    pub embedded: bool,
    /// Type.
    pub ty: Expr,
    /// Struct tag: key to value.
    pub tags: HashMap<String, String>,
    /// `+marker` lines of the comment, without the plus.
    pub markers: Vec<String>,
}

/// The definition of a type.
#[derive(Debug, Clone)]
pub(super) enum Def {
    /// A struct.
    Struct(Vec<Field>),
    /// Any other expression.
    Expr(Expr),
}

/// A declared type.
#[derive(Debug, Clone)]
pub(super) struct Decl {
    /// The definition.
    pub def: Def,
    /// Whether it is declared with `=`: another name of the same type.
    pub alias: bool,
    /// `+marker` lines of its comment.
    pub markers: Vec<String>,
    /// Import alias to path, of the file that declares it.
    pub imports: HashMap<String, String>,
}

/// A package.
#[derive(Debug, Default)]
pub(super) struct Package {
    /// Types by name.
    pub types: BTreeMap<String, Decl>,
    /// Values of the string constants of each named type.
    pub constants: HashMap<String, Vec<String>>,
    /// Constants of each named type that are another package's: its path, and the name there.
    pub borrowed: HashMap<String, Vec<(String, String)>>,
    /// Every string constant by its name.
    pub named: HashMap<String, String>,
}

/// Reads the files of `dir` that declare types.
pub(super) fn read(dir: &Path) -> Result<Package> {
    let mut package = Package::default();
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .with_context(|| format!("reading {}", dir.display()))?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| {
            let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            p.extension().is_some_and(|e| e == "go")
                && !name.ends_with("_test.go")
                && !name.starts_with("zz_")
                && !name.contains("generated")
        })
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        read_file(&text, &mut package).with_context(|| format!("in {}", file.display()))?;
    }
    Ok(package)
}

fn read_file(text: &str, package: &mut Package) -> Result<()> {
    let mut imports = HashMap::new();
    let mut markers: Vec<String> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("//") {
            push_marker(comment, &mut markers);
            continue;
        }
        if line == "import (" {
            for l in lines.by_ref().take_while(|l| *l != ")") {
                import(l, &mut imports);
            }
        } else if let Some(one) = line.strip_prefix("import ") {
            import(one, &mut imports);
        } else if line == "const (" {
            for l in lines.by_ref().take_while(|l| *l != ")") {
                constant(l, &imports, package);
            }
        } else if let Some(one) = line.strip_prefix("const ") {
            constant(one, &imports, package);
        } else if let Some(decl) = line.strip_prefix("type ") {
            let (name, rest) = decl.split_once(' ').context("a type without a definition")?;
            let def = if rest == "struct {" {
                Some(Def::Struct(fields(&mut lines)?))
            } else if rest.starts_with("struct {") || rest == "struct{}" {
                Some(Def::Struct(Vec::new()))
            } else if rest.starts_with("interface {") {
                lines.by_ref().find(|l| *l == "}");
                None
            } else {
                expr(without_comment(rest.trim_start_matches("= "))).map(Def::Expr)
            };
            if let Some(def) = def {
                package.types.insert(
                    name.to_owned(),
                    Decl {
                        def,
                        alias: rest.starts_with("= "),
                        markers: std::mem::take(&mut markers),
                        imports: imports.clone(),
                    },
                );
            }
        }
        markers.clear();
    }
    Ok(())
}

fn push_marker(comment: &str, markers: &mut Vec<String>) {
    if let Some(m) = comment.trim().strip_prefix('+') {
        markers.push(m.trim().to_owned());
    }
}

fn import(line: &str, imports: &mut HashMap<String, String>) {
    let Some((alias, rest)) = line.trim().split_once('"') else { return };
    let path = rest.trim_end().trim_end_matches('"');
    let alias = match alias.trim() {
        "" => path.rsplit('/').next().unwrap_or(path),
        a => a,
    };
    imports.insert(alias.to_owned(), path.to_owned());
}

fn constant(line: &str, imports: &HashMap<String, String>, package: &mut Package) {
    let Some((left, right)) = line.trim().split_once('=') else { return };
    let right = without_comment(right).trim();
    let quoted = |s: &str| s.strip_prefix('"').and_then(|v| v.strip_suffix('"')).map(str::to_owned);
    // The line is `A Kind = "a"`, `A = Kind("a")`, or has `package.A` instead of the text.
    let converted = right.strip_suffix(')').and_then(|r| r.split_once('('));
    let (ty, value) = match converted {
        Some((ty, inner)) => (Some(ty), quoted(inner)),
        None => (None, quoted(right)),
    };
    let mut left = left.split_whitespace();
    let Some(name) = left.next() else { return };
    let ty = left.next().or(ty);
    if let Some(value) = value {
        package.named.insert(name.to_owned(), value.clone());
        if let Some(ty) = ty {
            package.constants.entry(ty.to_owned()).or_default().push(value);
        }
    } else if let (Some(ty), Some((alias, of))) = (ty, converted.map_or(right, |c| c.1).split_once('.'))
        && let Some(path) = imports.get(alias)
    {
        package.borrowed.entry(ty.to_owned()).or_default().push((path.clone(), of.to_owned()));
    }
}

fn without_comment(s: &str) -> &str {
    match s.find(" //") {
        Some(at) if !s[..at].contains('`') || s[..at].matches('`').count() == 2 => s[..at].trim(),
        _ => s.trim(),
    }
}

fn fields<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<Vec<Field>> {
    let mut out = Vec::new();
    let mut markers = Vec::new();
    for line in lines {
        if line == "}" {
            return Ok(out);
        }
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("//") {
            push_marker(comment, &mut markers);
            continue;
        }
        if line.is_empty() {
            markers.clear();
            continue;
        }
        let line = without_comment(line);
        let (decl, tag) = match line.split_once('`') {
            Some((d, t)) => (d.trim(), t.trim_end_matches('`')),
            None => (line, ""),
        };
        let (name, ty, embedded) = match decl.split_once(char::is_whitespace) {
            Some((n, t)) => (n.to_owned(), t.trim(), false),
            None => (decl.rsplit(['.', '*']).next().unwrap_or(decl).to_owned(), decl, true),
        };
        if let Some(ty) = expr(ty) {
            out.push(Field { name, embedded, ty, tags: tags(tag), markers: std::mem::take(&mut markers) });
        }
        markers.clear();
    }
    anyhow::bail!("a struct without its end")
}

fn tags(tag: &str) -> HashMap<String, String> {
    let mut out = HashMap::new();
    let mut rest = tag.trim();
    while let Some((key, after)) = rest.split_once(":\"") {
        let Some((value, after)) = after.split_once('"') else { break };
        out.insert(key.trim().to_owned(), value.to_owned());
        rest = after;
    }
    out
}

/// Parses a type expression; `None` for one that no API type uses (functions, channels).
fn expr(s: &str) -> Option<Expr> {
    let s = s.trim();
    if let Some(of) = s.strip_prefix('*') {
        return Some(Expr::Pointer(Box::new(expr(of)?)));
    }
    if let Some(of) = s.strip_prefix("[]") {
        return Some(Expr::List(Box::new(expr(of)?)));
    }
    if let Some(rest) = s.strip_prefix("map[") {
        let (key, of) = rest.split_once(']')?;
        return Some(Expr::Map(Box::new(expr(key)?), Box::new(expr(of)?)));
    }
    if s == "interface{}" || s == "any" {
        return Some(Expr::Interface);
    }
    let word = |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match s.split_once('.') {
        Some((p, n)) if word(p) && word(n) => Some(Expr::Name(Some(p.to_owned()), n.to_owned())),
        None if word(s) => Some(Expr::Name(None, s.to_owned())),
        _ => None,
    }
}
