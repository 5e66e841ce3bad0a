//! The file of the providers: upstream's `CredentialProviderConfig`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::provider::Provider;
use super::validate::validate;

/// The kind of the files.
const KIND: &str = "CredentialProviderConfig";
/// The versions of the files: of those before v1 a provider has no `tokenAttributes`.
const VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1alpha1", "kubelet.config.k8s.io/v1beta1"];
/// The largest file that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// The providers of credentials that a kubelet asks, as they were configured and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialProviders {
    /// The directory of their programs; upstream's `--image-credential-provider-bin-dir`.
    pub(super) programs: PathBuf,
    /// They, in the order of the files.
    pub(super) providers: Vec<Provider>,
    /// The hash of the files, `sha256:HEX`.
    pub(super) hash: String,
}

/// Why the providers cannot be had; upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProvidersError {
    /// There is no directory of programs.
    #[error("plugin binary directory {} did not exist", .0.display())]
    NoPrograms(PathBuf),
    /// The directory of programs cannot be looked at.
    #[error("error inspecting binary directory {}: {error}", .path.display())]
    Programs {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no file of providers.
    #[error("credential provider config path is empty")]
    NoFile,
    /// The file, or a directory of such, cannot be read.
    #[error("unable to access path {path:?}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is none in the directory.
    #[error("no configuration files found in directory {0:?}")]
    NoFiles(PathBuf),
    /// A file has no providers as they must be written.
    #[error("error decoding config {path:?}: {why}")]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Two providers have one name.
    #[error("duplicate provider name {0:?} found in configuration file(s)")]
    Twice(String),
    /// A field has a value that it may not have.
    #[error("failed to validate credential provider config: {0}")]
    Invalid(String),
    /// A program is not there.
    ///
    /// DIFFERENCE: upstream's sentence has no name of the program.
    #[error("plugin binary executable {} did not exist", .0.display())]
    NoProgram(PathBuf),
    /// A program cannot be run.
    #[error("error inspecting binary executable {}: {error}", .path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl CredentialProviders {
    /// Reads upstream's `--image-credential-provider-config`, a file or a directory of such, and looks whether the
    /// programs are there. `tokens` says whether providers may get tokens of service accounts: upstream's gate
    /// `KubeletServiceAccountTokenForCredentialProviders`.
    ///
    /// # Errors
    /// A file cannot be used, or a program is not there.
    pub fn read(config: &Path, programs: &Path, tokens: bool) -> Result<Self, CredentialProvidersError> {
        match std::fs::metadata(programs) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CredentialProvidersError::NoPrograms(programs.to_owned()));
            }
            Err(error) => {
                return Err(CredentialProvidersError::Programs { path: programs.to_owned(), error });
            }
        }
        let (providers, hash) = providers(config)?;
        let wrong = validate(&providers, tokens);
        if !wrong.is_empty() {
            let text = match wrong.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            return Err(CredentialProvidersError::Invalid(text));
        }
        for provider in &providers {
            runnable(programs.join(&provider.name))?;
        }
        Ok(Self { programs: programs.to_owned(), providers, hash })
    }
}

/// Looks whether a program is there and may be run.
fn runnable(path: PathBuf) -> Result<(), CredentialProvidersError> {
    use std::os::unix::fs::PermissionsExt;
    let permitted = std::fs::metadata(&path).and_then(|found| {
        if found.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if found.permissions().mode() & 0o111 == 0 {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        Ok(())
    });
    permitted.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CredentialProvidersError::NoProgram(path),
        _ => CredentialProvidersError::Program { path, error },
    })
}

/// The providers of a file or of a directory's files, and the hash of all: of the length of each, and of its bytes.
fn providers(config: &Path) -> Result<(Vec<Provider>, String), CredentialProvidersError> {
    if config.as_os_str().is_empty() {
        return Err(CredentialProvidersError::NoFile);
    }
    let unreadable =
        |path: &Path, error| CredentialProvidersError::Unreadable { path: path.to_owned(), error };
    let found = std::fs::metadata(config).map_err(|error| unreadable(config, error))?;
    let files = if found.is_dir() {
        let files = files(config).map_err(|error| unreadable(config, error))?;
        if files.is_empty() {
            return Err(CredentialProvidersError::NoFiles(config.to_owned()));
        }
        files
    } else {
        vec![config.to_owned()]
    };
    let (mut all, mut names, mut hash) = (Vec::new(), BTreeSet::new(), Sha256::new());
    for path in files {
        let text = read(&path).map_err(|error| unreadable(&path, error))?;
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(&text);
        let decoded = decode(&text);
        for provider in decoded.map_err(|why| CredentialProvidersError::Undecodable { path, why })? {
            if !names.insert(provider.name.clone()) {
                return Err(CredentialProvidersError::Twice(provider.name));
            }
            all.push(provider);
        }
    }
    Ok((all, format!("sha256:{:x}", hash.finalize())))
}

/// The files of a directory that have providers, in the order of their names.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let named = path.extension().is_some_and(|e| e == "json" || e == "yaml" || e == "yml");
        if named && !entry.file_type()?.is_dir() {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::open(path)?, LARGEST + 1), &mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it has more than {LARGEST} bytes")));
    }
    Ok(text)
}

/// The fields of a file's objects that are known.
const OF_FILE: &[&str] = &["kind", "apiVersion", "providers"];
const OF_PROVIDER: &[&str] =
    &["name", "matchImages", "defaultCacheDuration", "apiVersion", "args", "env", "tokenAttributes"];
const OF_VARIABLE: &[&str] = &["name", "value"];
const OF_TOKENS: &[&str] = &[
    "serviceAccountTokenAudience",
    "cacheType",
    "requireServiceAccount",
    "requiredServiceAccountAnnotationKeys",
    "optionalServiceAccountAnnotationKeys",
];

/// The providers of one file; or why it has none.
fn decode(text: &[u8]) -> Result<Vec<Provider>, String> {
    let tree = api::yaml::parse(text).map_err(|e| e.to_string())?;
    let mut json = Vec::new();
    api::codec::json::encode_any(&tree, &mut json);
    let Ok(Value::Object(file)) = serde_json::from_slice::<Value>(&json) else {
        return Err("it is no object".into());
    };
    let said = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (said("kind"), said("apiVersion"));
    if kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&json)));
    }
    if kind != KIND || !VERSIONS.contains(&version) {
        return Err(format!("no kind {kind:?} is registered for version {version:?}"));
    }
    let mut unknown = Vec::new();
    strange("", &file, OF_FILE, &mut unknown);
    let written = file.get("providers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (i, provider) in written.iter().enumerate().filter_map(|(i, p)| Some((i, p.as_object()?))) {
        let at = format!("providers[{i}]");
        // The versions before v1 do not have the last one.
        let known = OF_PROVIDER.len() - usize::from(version != VERSIONS[0]);
        strange(&at, provider, &OF_PROVIDER[..known], &mut unknown);
        for (n, variable) in provider.get("env").and_then(Value::as_array).into_iter().flatten().enumerate() {
            if let Some(variable) = variable.as_object() {
                strange(&format!("{at}.env[{n}]"), variable, OF_VARIABLE, &mut unknown);
            }
        }
        if let Some(tokens) = provider.get("tokenAttributes").and_then(Value::as_object)
            && version == VERSIONS[0]
        {
            strange(&format!("{at}.tokenAttributes"), tokens, OF_TOKENS, &mut unknown);
        }
    }
    if !unknown.is_empty() {
        return Err(format!("strict decoding error: {}", unknown.join(", ")));
    }
    let providers: Vec<Provider> = match file.get("providers") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => serde_json::from_value(without_nulls(list)).map_err(|e| format!("providers: {e}"))?,
    };
    for (i, provider) in providers.iter().enumerate() {
        if let Some(text) = provider.unreadable_duration() {
            return Err(format!(
                "providers[{i}].defaultCacheDuration: {text:?} is no duration such as 1m30s"
            ));
        }
    }
    Ok(providers)
}

/// Adds the fields of an object that are not known.
fn strange(at: &str, object: &Map<String, Value>, known: &[&str], out: &mut Vec<String>) {
    for name in object.keys().filter(|name| !known.contains(&name.as_str())) {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        out.push(format!("unknown field {}", api::go::quote(&path)));
    }
}

/// Upstream reads `null` as if the field were not there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, v)| !v.is_null());
            Value::Object(kept.map(|(k, v)| (k.clone(), without_nulls(v))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::super::provider::Variable;
    use super::*;

    fn provider(name: &str, version: &str) -> String {
        format!(
            "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/{version}\nproviders:\n- name: {name}\n  \
             matchImages: [registry.io/one]\n  defaultCacheDuration: 10m\n  \
             apiVersion: credentialprovider.kubelet.k8s.io/v1\n"
        )
    }

    /// The names of the providers of a directory's files, or why there are none.
    fn check(files: &[(&str, &str)], want: Result<&[&str], &str>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        match (providers(dir.path()), want) {
            (Ok((all, _)), Ok(want)) => {
                assert_eq!(all.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), want);
            }
            (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
            (got, want) => panic!("{got:?} is not {want:?}"),
        }
    }

    #[test]
    fn files_have_providers() {
        let [one, two, three] =
            [("one", "v1"), ("two", "v1beta1"), ("three", "v1alpha1")].map(|(n, v)| provider(n, v));
        check(&[], Err("no configuration files found in directory"));
        check(&[("a.txt", "x"), ("b.md", "y")], Err("no configuration files found in directory"));
        let json = r#"{"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1", "providers":
            [{"name": "four", "matchImages": ["a"], "defaultCacheDuration": null, "apiVersion": ""}]}"#;
        let files: [(&str, &str); 5] =
            [("2.yml", two.as_str()), ("1.yaml", &one), ("3.yaml", &three), ("x.txt", "-"), ("4.json", json)];
        check(&files, Ok(&["one", "two", "three", "four"]));
        check(&[("1.yaml", &one), ("2.yaml", &one)], Err("duplicate provider name \"one\" found"));
        let kind = one.replace("CredentialProviderConfig", "WrongKind");
        let text = "no kind \"WrongKind\" is registered for version \"kubelet.config.k8s.io/v1\"";
        check(&[("1.yaml", &one), ("2.yaml", &kind)], Err(text));
        let version = one.replace("kubelet.config.k8s.io", "foobar");
        check(
            &[("1.yaml", &version)],
            Err("no kind \"CredentialProviderConfig\" is registered for version \"f"),
        );
        check(&[("1.yaml", "providers: []")], Err("Object 'Kind' is missing in '"));
        check(&[("1.yaml", "- 1")], Err("it is no object"));
        let more = format!("{one}  unknownField: x\n");
        let text = "strict decoding error: unknown field \"providers[0].unknownField\"";
        check(&[("1.yaml", &more)], Err(text));
        for older in [&two, &three] {
            let tokens = format!("{older}  tokenAttributes: {{serviceAccountTokenAudience: a}}\n");
            let text = "strict decoding error: unknown field \"providers[0].tokenAttributes\"";
            check(&[("1.yaml", &tokens)], Err(text));
        }
        let tokens = format!("{one}  tokenAttributes: {{serviceAccountTokenAudience: a}}\n");
        check(&[("1.yaml", &tokens)], Ok(&["one"]));
        let more = format!("{one}  tokenAttributes: {{audience: a}}\n  env: [{{name: A, valu: b}}]\n");
        check(
            &[("1.yaml", &more)],
            Err(
                "unknown field \"providers[0].env[0].valu\", unknown field \"providers[0].tokenAttributes.audience\"",
            ),
        );
        check(
            &[("1.yaml", &one.replace("10m", "often"))],
            Err("providers[0].defaultCacheDuration: \"often\""),
        );
        check(&[("1.yaml", &one.replace("[registry.io/one]", "7"))], Err("providers: invalid type"));
    }

    /// Upstream's hashes of the same bytes.
    #[test]
    fn hashes_are_upstreams() {
        let file = "---\nkind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1alpha1\nproviders:\n  - name: test\n    matchImages:\n    - \"registry.io/foobar\"\n    defaultCacheDuration: 10m\n    apiVersion: credentialprovider.kubelet.k8s.io/v1alpha1\n    args:\n    - --v=5\n    env:\n    - name: FOO\n      value: BAR";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, file).unwrap();
        let (all, hash) = providers(&path).unwrap();
        assert_eq!(hash, "sha256:8a62755289ba50c4ca9495baab69eb861068503f8bd49b853e8ba6cf95c72bb8");
        assert_eq!(all[0].env, [Variable { name: "FOO".into(), value: "BAR".into() }]);
        assert_eq!(
            (all[0].args.as_slice(), all[0].keeps()),
            (&["--v=5".to_owned()][..], Duration::from_mins(10))
        );
    }

    #[test]
    fn programs_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let (config, programs) = (dir.path().join("c.yaml"), dir.path().join("bin"));
        std::fs::write(&config, provider("p", "v1")).unwrap();
        let read = || CredentialProviders::read(&config, &programs, true).map_err(|e| e.to_string());
        let shown = programs.display();
        assert_eq!(read().unwrap_err(), format!("plugin binary directory {shown} did not exist"));
        std::fs::create_dir(&programs).unwrap();
        assert_eq!(read().unwrap_err(), format!("plugin binary executable {shown}/p did not exist"));
        std::fs::write(programs.join("p"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(programs.join("p"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = read().unwrap_err();
        assert_eq!(error, format!("error inspecting binary executable {shown}/p: permission denied"));
        std::fs::set_permissions(programs.join("p"), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(read().unwrap().providers.len(), 1);
        let none = CredentialProviders::read(Path::new(""), &programs, true).unwrap_err();
        assert_eq!(none.to_string(), "credential provider config path is empty");
        std::fs::write(&config, provider("../p", "v1")).unwrap();
        assert!(
            read()
                .unwrap_err()
                .starts_with("failed to validate credential provider config: providers.name: ")
        );
    }
}
