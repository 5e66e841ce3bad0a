//! How a machine recognises the cluster that it joins: by the ConfigMap `cluster-info`, which the token signs, and by
//! the pin of the cluster's authority. Nothing that an unverified server says is used before that.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::Status;
use client::bootstrap::{CLUSTER_INFO, KUBECONFIG_KEY, SIGNATURE_PREFIX, Token, is_signed};
use client::{Backoff, Client, Config, Remote};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::{Instant, timeout};

use super::sentences::unreachable;
use crate::say::{say, whole};

/// The time within which the ConfigMap must be there, with the token's signature: that of a new token comes a moment
/// later.
const LIMIT: Duration = Duration::from_secs(30);

/// The time after which a person who waits is told what is waited for.
const SILENCE: Duration = Duration::from_secs(5);

/// The pins of authorities: each `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pins(Vec<String>);

impl Pins {
    /// Reads the pins of `--ca-hash`.
    pub(super) fn parse(texts: &[String]) -> Result<Self> {
        let one = |text: &String| {
            let low = text.to_ascii_lowercase();
            match low.split_once(':') {
                Some(("sha256", hex)) if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
                    Ok(low)
                }
                Some(("sha256", _)) => bail!("invalid --ca-hash {text:?}, expected a 32 byte SHA-256 hash"),
                Some((format, _)) => {
                    bail!("unknown hash format {format:?} of --ca-hash. Known format(s) are: sha256")
                }
                None => bail!(
                    "invalid --ca-hash {text:?}, expected \"format:hex-value\". Known format(s) are: sha256"
                ),
            }
        };
        texts.iter().map(one).collect::<Result<_>>().map(Self)
    }
    /// Whether any authority is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Checks that one of the authorities is pinned.
    pub(super) fn check(&self, config: &Config) -> Result<()> {
        let found: Vec<String> =
            config.authorities.iter().filter_map(|ca| access::pki::public_key_hash(ca)).collect();
        if self.is_empty() || found.iter().any(|hash| self.0.contains(hash)) {
            return Ok(());
        }
        bail!(
            "the server belongs to another cluster: its authority is {}, and --ca-hash wants {}",
            found.join(", "),
            self.0.join(" or ")
        )
    }
}

/// Finds the cluster: the server with the authorities by which it is known from now on.
pub(super) async fn discover(server: &str, token: &Token, pins: &Pins) -> Result<Config> {
    let stranger = Config { server: server.to_owned(), any_server: true, ..Config::default() };
    let map = cluster_info(stranger, server, token).await?;
    let text = kubeconfig(&map, token)?;
    let found =
        Config::of_cluster(text).context("couldn't parse the kubeconfig of the cluster-info ConfigMap")?;
    pins.check(&found)?;
    // The server that answered must be one that the authority knows, and must say the same again.
    let known =
        || Config { server: server.to_owned(), authorities: found.authorities.clone(), ..Config::default() };
    let again = cluster_info(known(), server, token).await?;
    if again.data.as_ref().and_then(|d| d.get(KUBECONFIG_KEY)).map(String::as_str) != Some(text) {
        bail!("the kubeconfig of the cluster-info ConfigMap changed while it was verified; start again");
    }
    Ok(known())
}

/// The kubeconfig of the ConfigMap, if the token signed it.
fn kubeconfig<'a>(map: &'a ConfigMap, token: &Token) -> Result<&'a str> {
    let get = |key: &str| map.data.as_ref().and_then(|d| d.get(key)).filter(|text| !text.is_empty());
    let text = get(KUBECONFIG_KEY).context(
        "there is no kubeconfig key in the cluster-info ConfigMap. This API Server isn't set up for token bootstrapping, can't connect",
    )?;
    let id = token.id();
    let signature = get(&format!("{SIGNATURE_PREFIX}{id}")).with_context(|| {
        format!(
            "token id {id:?} is invalid for this cluster or it has expired. Use \"ferrokube token create\" on the control plane to create a new valid token"
        )
    })?;
    if !is_signed(signature, text, token) {
        bail!("failed to verify JWS signature of received cluster info object, can't trust this API Server");
    }
    Ok(text)
}

/// Reads the ConfigMap, and waits for a while for the token's signature; the last one that was read.
async fn cluster_info(config: Config, server: &str, token: &Token) -> Result<ConfigMap> {
    let client = Client::new(Arc::new(Remote::new(config)?), "ferrokube");
    let (namespace, name) = CLUSTER_INFO;
    let signature = format!("{SIGNATURE_PREFIX}{}", token.id());
    let mut last: Option<Result<ConfigMap, Status>> = None;
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
    let _ = timeout(LIMIT, async {
        let mut told = false;
        let started = Instant::now();
        loop {
            let read = client.api::<ConfigMap>(namespace).get(name).await;
            let signed =
                read.as_ref().is_ok_and(|map| map.data.as_ref().is_some_and(|d| d.contains_key(&signature)));
            let hopeless = read.as_ref().is_err_and(is_final);
            if !(signed || hopeless || told) && started.elapsed() >= SILENCE {
                told = true;
                let why = read.as_ref().err().map_or_else(
                    || format!("{server} has not signed its cluster-info by this token yet"),
                    |status| whole(&unreachable(server, status)),
                );
                say(&format!("{why}; this goes on trying"));
            }
            last = Some(read);
            if signed || hopeless {
                return;
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    })
    .await;
    match last {
        Some(Ok(map)) => Ok(map),
        Some(Err(e)) if e.is_not_found() || e.code == 401 || e.code == 403 => {
            bail!(
                "{server} does not tell where its cluster is ({}); is it set up for joining nodes?",
                e.message
            )
        }
        Some(Err(e)) => Err(unreachable(server, &e)),
        None => bail!("{server} does not answer; is it the API server's address, and is the way there open?"),
    }
}

/// Whether a refusal does not pass by itself, as that of a control plane does that has only begun.
fn is_final(status: &Status) -> bool {
    ![403, 404, 503].contains(&status.code) || status.message.contains("invalid peer certificate")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use client::bootstrap::sign;

    use super::*;

    #[test]
    fn pins() {
        let good = format!("sha256:{}", "ab".repeat(32));
        let check = |text: &str, expected: Result<&str, &str>| {
            let got = Pins::parse(&[text.to_owned()]).map(|p| p.0.join(",")).map_err(|e| e.to_string());
            match (got, expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected),
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        };
        check(&good, Ok(&good));
        check(&good.to_uppercase().replace("SHA256", "sha256"), Ok(&good));
        check("sha256:ab", Err("expected a 32 byte SHA-256 hash"));
        check(&format!("sha256:{}", "zz".repeat(32)), Err("expected a 32 byte SHA-256 hash"));
        check(&"ab".repeat(32), Err("expected \"format:hex-value\""));
        check("md5:ab", Err("unknown hash format \"md5\""));
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let ca = access::pki::Authority::generate("kubernetes", now).unwrap();
        let config = Config { authorities: vec![ca.certificate()], ..Config::default() };
        let own = access::pki::public_key_hash(&ca.certificate()).unwrap();
        let judge = |pins: &[&str]| {
            let pins: Vec<String> = pins.iter().map(|p| (*p).to_owned()).collect();
            Pins::parse(&pins).unwrap().check(&config).map_err(|e| e.to_string())
        };
        judge(&[]).unwrap();
        judge(&[&own]).unwrap();
        judge(&[&good, &own]).unwrap();
        assert!(judge(&[&good]).unwrap_err().contains("belongs to another cluster"));
    }

    #[test]
    fn the_token_vouches_for_the_cluster() {
        let token: Token = "abcdef.0123456789abcdef".parse().unwrap();
        let other: Token = "abcdef.fedcba9876543210".parse().unwrap();
        let check = |pairs: &[(&str, String)], expected: Result<&str, &str>| {
            let data = pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect::<BTreeMap<_, _>>();
            let map = ConfigMap { data: Some(data), ..ConfigMap::default() };
            match (kubeconfig(&map, &token), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected),
                (Err(got), Err(expected)) => assert!(got.to_string().contains(expected), "{got}"),
                (got, _) => panic!("{pairs:?}: {got:?}"),
            }
        };
        let text = "kubeconfig".to_owned();
        let signature = |by: &Token| ("jws-kubeconfig-abcdef", sign("kubeconfig", by.id(), by.secret()));
        check(&[("kubeconfig", text.clone()), signature(&token)], Ok("kubeconfig"));
        check(
            &[("kubeconfig", text.clone())],
            Err("token id \"abcdef\" is invalid for this cluster or it has expired"),
        );
        check(&[("kubeconfig", text.clone()), signature(&other)], Err("failed to verify JWS signature"));
        check(
            &[("kubeconfig", "forged".to_owned()), signature(&token)],
            Err("failed to verify JWS signature"),
        );
        check(&[signature(&token)], Err("there is no kubeconfig key"));
    }
}
