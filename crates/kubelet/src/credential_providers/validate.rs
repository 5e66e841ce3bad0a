//! The rules of upstream's for the file of the providers, in its order and words.

use std::collections::BTreeSet;

use api::field::{Errors, Path, Raw};

use super::place::Place;
use super::provider::{Provider, TokenAttributes, VERSIONS};

/// For whom an answer to a token is kept.
pub(super) const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];
/// The version whose requests have tokens.
const WITH_TOKENS: &str = VERSIONS[0];

/// The errors of a file, a text for each. `tokens` says whether providers may get tokens of service accounts.
pub(super) fn validate(providers: &[Provider], tokens: bool) -> Vec<String> {
    let mut errors = Errors::new();
    // Upstream tells no places in the list.
    let at = Path::root("providers");
    if providers.is_empty() {
        errors.required(&at, "at least 1 item in plugins is required");
    }
    let mut names = BTreeSet::new();
    for provider in providers {
        let name = at.field("name");
        for (wrong, why) in [
            (provider.name.contains('/'), "provider name cannot contain '/'"),
            (provider.name.contains(' '), "provider name cannot contain spaces"),
            (provider.name == ".", "provider name cannot be '.'"),
            (provider.name == "..", "provider name cannot be '..'"),
        ] {
            if wrong {
                errors.invalid(&name, provider.name.as_str(), why);
            }
        }
        if !names.insert(&provider.name) {
            errors.duplicate(&name, provider.name.as_str());
        }
        of_provider(&mut errors, &at, provider);
        if let Some(attributes) = &provider.token_attributes {
            let at = at.field("tokenAttributes");
            if !tokens {
                errors.forbidden(&at, "tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is disabled");
            }
            of_tokens(&mut errors, &at, attributes, &provider.api_version);
        }
    }
    let mut texts: Vec<String> = Vec::new();
    for error in &errors.0 {
        let text = format!("{}: {}", error.field, error.body());
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

fn of_provider(errors: &mut Errors, at: &Path<'_>, provider: &Provider) {
    let version = at.field("apiVersion");
    if provider.api_version.is_empty() {
        errors.required(&version, "");
    } else if !VERSIONS.contains(&provider.api_version.as_str()) {
        errors.not_supported(&version, provider.api_version.as_str(), &VERSIONS);
    }
    let images = at.field("matchImages");
    if provider.match_images.is_empty() {
        errors.required(&images, "at least 1 item in matchImages is required");
    }
    for image in &provider.match_images {
        if let Err(error) = Place::parse(image) {
            errors.invalid(&images, image.as_str(), format!("match image is invalid: {error}"));
        }
    }
    let duration = at.field("defaultCacheDuration");
    match provider.cache_duration() {
        None => errors.required(&duration, ""),
        Some(time) if time.is_negative() => {
            let text = api::time::format_duration(time).to_string();
            errors.invalid(&duration, text.as_str(), "must be greater than or equal to 0");
        }
        Some(_) => {}
    }
}

fn of_tokens(errors: &mut Errors, at: &Path<'_>, attributes: &TokenAttributes, version: &str) {
    let required = at.field("requiredServiceAccountAnnotationKeys");
    let optional = at.field("optionalServiceAccountAnnotationKeys");
    if attributes.service_account_token_audience.is_empty() {
        errors.required(&at.field("serviceAccountTokenAudience"), "");
    }
    if attributes.require_service_account.is_none() {
        errors.required(&at.field("requireServiceAccount"), "");
    }
    if version != WITH_TOKENS {
        errors.forbidden(at, format!("tokenAttributes is only supported for {WITH_TOKENS} API version"));
    }
    let keys = &attributes.required_service_account_annotation_keys;
    let others = &attributes.optional_service_account_annotation_keys;
    if attributes.require_service_account == Some(false) && !keys.is_empty() {
        errors.forbidden(
            &required,
            "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
        );
    }
    of_keys(errors, &required, keys);
    of_keys(errors, &optional, others);
    let both: BTreeSet<&String> = keys.iter().filter(|key| others.contains(key)).collect();
    if !both.is_empty() {
        let list: Vec<String> = both.into_iter().map(|key| api::go::quote(key)).collect();
        let list = Raw(format!("[{}]", list.join(",")));
        errors.invalid(at, list, "annotation keys cannot be both required and optional");
    }
    let cache_type = at.field("cacheType");
    match attributes.cache_type.as_str() {
        "" => {
            let text =
                "cacheType is required to be set when tokenAttributes is specified. Supported values are: ";
            errors.required(&cache_type, format!("{text}{}", CACHE_TYPES.join(", ")));
        }
        known if CACHE_TYPES.contains(&known) => {}
        other => errors.not_supported(&cache_type, other, &CACHE_TYPES),
    }
}

fn of_keys(errors: &mut Errors, at: &Path<'_>, keys: &[String]) {
    let mut seen = BTreeSet::new();
    for key in keys {
        for why in api::names::qualified_name(&key.to_lowercase()) {
            errors.invalid(at, key.as_str(), why);
        }
        if !seen.insert(key) {
            errors.duplicate(at, key.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The errors of one provider with these fields in place of good ones; null takes a field away.
    fn check_with(tokens: bool, changes: &Value, want: &str) {
        let mut provider = json!({
            "name": "foobar",
            "matchImages": ["foobar.registry.io"],
            "defaultCacheDuration": "1m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        });
        for (key, value) in changes.as_object().unwrap() {
            provider[key] = value.clone();
        }
        provider.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let provider: Provider = serde_json::from_value(provider).unwrap();
        assert_eq!(validate(&[provider], tokens).join(" | "), want, "{changes}");
    }

    /// Upstream's cases.
    #[test]
    fn rules_of_providers() {
        let check = |changes: Value, want: &str| check_with(true, &changes, want);
        assert_eq!(
            validate(&[], true),
            ["providers: Required value: at least 1 item in plugins is required"]
        );
        check(json!({}), "");
        check(
            json!({"matchImages": []}),
            "providers.matchImages: Required value: at least 1 item in matchImages is required",
        );
        check(json!({"defaultCacheDuration": null}), "providers.defaultCacheDuration: Required value");
        check(
            json!({"defaultCacheDuration": "-1m"}),
            "providers.defaultCacheDuration: Invalid value: \"-1m0s\": must be greater than or equal to 0",
        );
        check(
            json!({"name": "foo/../bar"}),
            "providers.name: Invalid value: \"foo/../bar\": provider name cannot contain '/'",
        );
        check(json!({"name": "."}), "providers.name: Invalid value: \".\": provider name cannot be '.'");
        check(json!({"name": ".."}), "providers.name: Invalid value: \"..\": provider name cannot be '..'");
        check(
            json!({"name": "foo bar"}),
            "providers.name: Invalid value: \"foo bar\": provider name cannot contain spaces",
        );
        check(json!({"apiVersion": ""}), "providers.apiVersion: Required value");
        check(
            json!({"apiVersion": "credentialprovider.kubelet.k8s.io/v1alpha0"}),
            "providers.apiVersion: Unsupported value: \"credentialprovider.kubelet.k8s.io/v1alpha0\": supported values: \"credentialprovider.kubelet.k8s.io/v1\", \"credentialprovider.kubelet.k8s.io/v1alpha1\", \"credentialprovider.kubelet.k8s.io/v1beta1\"",
        );
        check(
            json!({"matchImages": ["%invalid%"]}),
            "providers.matchImages: Invalid value: \"%invalid%\": match image is invalid: parse \"https://%invalid%\": invalid URL escape \"%in\"",
        );
        let twice: Provider = serde_json::from_value(json!({
            "name": "foobar", "matchImages": ["a"], "defaultCacheDuration": "1m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        }))
        .unwrap();
        assert_eq!(validate(&[twice.clone(), twice], true), ["providers.name: Duplicate value: \"foobar\""]);
    }

    /// Upstream's cases.
    #[test]
    fn rules_of_tokens() {
        let with = |changes: Value| {
            let mut tokens = json!({
                "serviceAccountTokenAudience": "audience", "cacheType": "Token", "requireServiceAccount": true,
            });
            for (key, value) in changes.as_object().unwrap() {
                tokens[key] = value.clone();
            }
            tokens.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            json!({ "tokenAttributes": tokens })
        };
        let check = |changes: Value, want: &str| check_with(true, &with(changes), want);
        let at = "providers.tokenAttributes";
        check(json!({}), "");
        check(
            json!({"requiredServiceAccountAnnotationKeys": ["x/a", "x/B"], "optionalServiceAccountAnnotationKeys": ["x/c"]}),
            "",
        );
        check_with(
            false,
            &with(json!({})),
            &format!(
                "{at}: Forbidden: tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is disabled"
            ),
        );
        check(
            json!({"serviceAccountTokenAudience": null}),
            &format!("{at}.serviceAccountTokenAudience: Required value"),
        );
        check(
            json!({"cacheType": null}),
            &format!(
                "{at}.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: ServiceAccount, Token"
            ),
        );
        check(
            json!({"cacheType": "invalid"}),
            &format!(
                "{at}.cacheType: Unsupported value: \"invalid\": supported values: \"ServiceAccount\", \"Token\""
            ),
        );
        check(json!({"requireServiceAccount": null}), &format!("{at}.requireServiceAccount: Required value"));
        for field in ["requiredServiceAccountAnnotationKeys", "optionalServiceAccountAnnotationKeys"] {
            check(
                json!({field: ["cantendwithadash-", "now-with-dashes/simple"]}),
                &format!(
                    "{at}.{field}: Invalid value: \"cantendwithadash-\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            );
            check(json!({field: ["a/b", "a/b"]}), &format!("{at}.{field}: Duplicate value: \"a/b\""));
        }
        check(
            json!({"requiredServiceAccountAnnotationKeys": ["a/1", "a/2"], "optionalServiceAccountAnnotationKeys": ["a/2", "a/3"]}),
            &format!("{at}: Invalid value: [\"a/2\"]: annotation keys cannot be both required and optional"),
        );
        check(
            json!({"requireServiceAccount": false, "requiredServiceAccountAnnotationKeys": ["a/1"]}),
            &format!(
                "{at}.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set"
            ),
        );
        for version in ["v1alpha1", "v1beta1"] {
            let mut changes = with(json!({}));
            changes["apiVersion"] = json!(format!("credentialprovider.kubelet.k8s.io/{version}"));
            check_with(
                true,
                &changes,
                &format!(
                    "{at}: Forbidden: tokenAttributes is only supported for credentialprovider.kubelet.k8s.io/v1 API version"
                ),
            );
        }
    }
}
