//! The tokens with which nodes join: `ferrokube token create | list | delete`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use api::Status;
use client::bootstrap::{
    CLUSTER_INFO, Entry, ID_PATTERN, KUBECONFIG_KEY, NAMESPACE, SECRET_PREFIX, SECRET_TYPE, Spec,
    TOKEN_PATTERN, Token, USAGES, is_group, is_id,
};
use client::{Client, Config, ListParams, Remote};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::say::say;
use crate::seat::NodeParts;
use crate::{cli, cluster_dns, load_balancers, network_policy};

/// Runs `ferrokube token`.
pub(crate) async fn run(flags: &cli::Token) -> Result<()> {
    match flags {
        cli::Token::Create(flags) => create(flags).await,
        cli::Token::List(at) => list(&client(at)?.0).await,
        cli::Token::Delete { tokens, at } => delete(tokens, &client(at)?.0).await,
    }
}

/// A client of the cluster, and the pins of the authorities that its kubeconfig trusts.
fn client(at: &cli::ClusterOf) -> Result<(Client, Vec<String>)> {
    let kubeconfig = at.kubeconfig.clone().unwrap_or_else(|| at.data_dir.join("admin.kubeconfig"));
    let shown = kubeconfig.display();
    if !kubeconfig.exists() {
        bail!("{shown} does not exist; name the cluster's kubeconfig with --kubeconfig, or its --data-dir");
    }
    let unusable = || format!("--kubeconfig {shown} cannot be used");
    let config = Config::from_kubeconfig(&kubeconfig, None).with_context(unusable)?;
    let pins = config.authorities.iter().filter_map(|ca| access::pki::public_key_hash(ca)).collect();
    let remote = Remote::new(config).with_context(unusable)?;
    Ok((Client::new(std::sync::Arc::new(remote), "ferrokube"), pins))
}

async fn create(flags: &cli::TokenCreate) -> Result<()> {
    let spec = spec(flags, Timestamp::now())?;
    let parts = flags.node_parts.as_deref().map(NodeParts::parse).transpose();
    let parts = parts.map_err(|e| anyhow!("--node-parts: {e}"))?;
    let (client, pins) = client(&flags.at)?;
    let ranges = match parts {
        Some(parts) => accounts(&client, parts).await.context("the nodes' parts do not get their rights")?,
        None => Vec::new(),
    };
    let name = spec.token.secret_name();
    let id = spec.token.id();
    match client.api::<Secret>(NAMESPACE).create(&spec.secret()).await {
        Err(e) if e.is_already_exists() => bail!("a token with id {id:?} already exists"),
        other => other
            .map_err(|e| anyhow!("failed to create the token as Secret {NAMESPACE}/{name}: {}", e.message))?,
    };
    if !flags.print_join_command {
        say(&spec.token.text());
        return Ok(());
    }
    let (namespace, name) = CLUSTER_INFO;
    let map = client.api::<ConfigMap>(namespace).get(name).await;
    let map = map.map_err(|e| {
        anyhow!("the token is {}, but where the cluster is cannot be read: {}", spec.token.text(), e.message)
    })?;
    let kubeconfig = map.data.as_ref().and_then(|d| d.get(KUBECONFIG_KEY));
    let kubeconfig =
        kubeconfig.with_context(|| format!("there is no {KUBECONFIG_KEY} key in the {name} ConfigMap"))?;
    let server = Config::of_cluster(kubeconfig)?.server;
    let mut command = format!("ferrokube agent --server {server} --token {}", spec.token.text());
    for pin in pins {
        command.push_str(" --ca-hash ");
        command.push_str(&pin);
    }
    if let Some(parts) = parts {
        command.push_str(" --parts ");
        command.push_str(&parts.names());
    }
    if !ranges.is_empty() {
        command.push_str(" --service-cidr ");
        command.push_str(&ranges.join(","));
    }
    say(&command);
    Ok(())
}

/// Gives the accounts of nodes' parts their rights; the ranges of Services' addresses, if a part must know them. The
/// account of the Service proxy is upstream's, which has its rights everywhere.
async fn accounts(admin: &Client, parts: NodeParts) -> Result<Vec<String>> {
    let told = |status: Status| anyhow!("{}", status.message);
    if parts.policy {
        network_policy::account(admin).await.map_err(told)?;
    }
    if parts.balancer {
        load_balancers::account(admin).await.map_err(told)?;
    }
    if parts.dns { cluster_dns::account(admin).await } else { Ok(Vec::new()) }
}

/// The token that the flags describe.
fn spec(flags: &cli::TokenCreate, now: Timestamp) -> Result<Spec> {
    let token = match &flags.token {
        Some(text) => text.parse::<Token>().map_err(|e| anyhow!("{e}"))?,
        None => Token::generate().context("the system gives no random numbers")?,
    };
    if let Some(other) = flags.usages.iter().find(|u| !USAGES.contains(&u.as_str())) {
        bail!("invalid bootstrap token usage string: {other}, valid usage options: {}", USAGES.join(", "));
    }
    if let Some(other) = flags.groups.iter().find(|g| !is_group(g)) {
        bail!("bootstrap group {other:?} is invalid (must match {})", client::bootstrap::GROUP_PATTERN);
    }
    if !flags.groups.is_empty() && !flags.usages.iter().any(|u| u == "authentication") {
        bail!("token groups cannot be specified unless --usages includes \"authentication\"");
    }
    let expires = if flags.ttl.is_zero() { None } else { Some(now + flags.ttl) };
    Ok(Spec {
        token,
        description: flags.description.clone(),
        expires,
        usages: flags.usages.clone(),
        groups: flags.groups.clone(),
    })
}

async fn list(client: &Client) -> Result<()> {
    let params = ListParams { field_selector: format!("type={SECRET_TYPE}"), ..ListParams::default() };
    let list = client.api::<Secret>(NAMESPACE).list(&params).await;
    let list = list.map_err(|e| anyhow!("failed to list bootstrap tokens: {}", e.message))?;
    let specs: Vec<Spec> = list.items.iter().filter_map(|secret| Entry::from(secret).spec()).collect();
    print!("{}", table(&specs, Timestamp::now()));
    Ok(())
}

/// The tokens as kubeadm shows them.
fn table(specs: &[Spec], now: Timestamp) -> String {
    let or = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
    let mut rows =
        vec![["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"].map(str::to_owned)];
    rows.extend(specs.iter().map(|spec| {
        let left = spec.expires.map(|end| Duration::try_from(end.duration_since(now)).unwrap_or_default());
        [
            spec.token.text(),
            left.map_or("<forever>".to_owned(), short),
            spec.expires.map_or("<never>".to_owned(), |end| api::time::format(end).to_string()),
            or(spec.usages.join(","), "<none>"),
            or(spec.description.clone(), "<none>"),
            or(spec.groups.join(","), "<none>"),
        ]
    }));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(7) + 3;
    let widths: Vec<usize> = (0..5).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}{}\n", cells.collect::<String>(), row[5])
    };
    rows.iter().map(line).collect()
}

/// A time that is left, in its greatest unit, as `ShortHumanDuration` has it.
fn short(left: Duration) -> String {
    match left.as_secs() {
        0 => "<invalid>".to_owned(),
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => format!("{}m", s / 60),
        s if s < 24 * 3600 => format!("{}h", s / 3600),
        s if s < 365 * 24 * 3600 => format!("{}d", s / (24 * 3600)),
        s => format!("{}y", s / (365 * 24 * 3600)),
    }
}

async fn delete(tokens: &[String], client: &Client) -> Result<()> {
    // All are looked at before one is deleted.
    let ids: Vec<String> = tokens.iter().map(|text| id_of(text)).collect::<Result<_>>()?;
    for id in ids {
        let name = format!("{SECRET_PREFIX}{id}");
        let deleted = client.api::<Secret>(NAMESPACE).delete(&name, None).await;
        deleted.map_err(|e| anyhow!("failed to delete bootstrap token {id:?}: {}", e.message))?;
        say(&format!("bootstrap token {id:?} deleted"));
    }
    Ok(())
}

/// The id of a token, or of an id.
fn id_of(text: &str) -> Result<String> {
    if is_id(text) {
        return Ok(text.to_owned());
    }
    match text.parse::<Token>() {
        Ok(token) => Ok(token.id().to_owned()),
        Err(_) => bail!("given token didn't match pattern {TOKEN_PATTERN:?} or {ID_PATTERN:?}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn created(arguments: &str) -> Result<Spec> {
        let line = format!("ferrokube token create {arguments}");
        let line = line.split(' ').filter(|a| !a.is_empty());
        let Command::Token(cli::Token::Create(flags)) = Cli::try_parse_from(line)?.command else {
            bail!("another command")
        };
        spec(&flags, "2026-01-01T00:00:00Z".parse()?)
    }

    #[test]
    fn tokens_are_as_the_flags_say() {
        let one = created("").unwrap();
        assert_eq!(one.groups, [client::bootstrap::NODE_GROUP]);
        assert_eq!(one.usages, ["signing", "authentication"]);
        assert_eq!(one.expires, Some("2026-01-02T00:00:00Z".parse().unwrap()));
        assert_eq!(created("--ttl 0").unwrap().expires, None);
        assert_eq!(created("abcdef.0123456789abcdef").unwrap().token.id(), "abcdef");
        let check = |arguments: &str, expected: &str| {
            let error = created(arguments).unwrap_err().to_string();
            assert!(error.contains(expected), "{arguments}: {error}");
        };
        check("abcdef", "the bootstrap token was not of the form");
        check("--usages signing,other", "invalid bootstrap token usage string: other");
        check("--groups system:masters", "bootstrap group \"system:masters\" is invalid");
        check("--usages signing", "token groups cannot be specified");
        check("--ttl soon", "not a duration");
    }

    #[test]
    fn a_table_of_tokens() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut one = created("abcdef.0123456789abcdef --ttl 23h").unwrap();
        let other = Spec { expires: None, usages: vec![], groups: vec![], ..one.clone() };
        one.description = "mine".to_owned();
        let lines: Vec<String> = table(&[one, other], now).lines().map(str::to_owned).collect();
        assert_eq!(
            lines[0],
            "TOKEN                     TTL         EXPIRES                USAGES                   DESCRIPTION   EXTRA GROUPS"
        );
        assert!(lines[1].starts_with(
            "abcdef.0123456789abcdef   23h         2026-01-01T23:00:00Z   signing,authentication   mine"
        ));
        assert!(
            lines[2].contains("<forever>   <never>") && lines[2].ends_with("<none>        <none>"),
            "{}",
            lines[2]
        );
        let check = |seconds: u64, expected: &str| assert_eq!(short(Duration::from_secs(seconds)), expected);
        check(0, "<invalid>");
        check(59, "59s");
        check(3599, "59m");
        check(86_399, "23h");
        check(86_400 * 364, "364d");
        check(86_400 * 800, "2y");
    }

    #[test]
    fn what_is_deleted() {
        let check =
            |text: &str, expected: Option<&str>| assert_eq!(id_of(text).ok().as_deref(), expected, "{text}");
        check("abcdef", Some("abcdef"));
        check("abcdef.0123456789abcdef", Some("abcdef"));
        check("abcde", None);
        check("../abc", None);
    }
}
