//! The questions and answers as they go over HTTP: upstream's `extender/v1`, whose fields have Go's names.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::go::quote;
use client::Client;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::talk::{Answer, Filtered, Question, Talk};
use super::{Extender, NAME};
use crate::cache::Cache;
use crate::framework::points::{Candidate, Unbound};
use crate::pod::PodInfo;

/// The names of fields as Go's decoder reads them: in any case.
fn lowercase(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields.into_iter().map(|(k, v)| (k.to_ascii_lowercase(), v)).collect(),
        _ => Map::new(),
    }
}

fn field<T: DeserializeOwned + Default>(fields: &mut Map<String, Value>, name: &str) -> Result<T, String> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => serde_json::from_value(value).map_err(|e| format!("decoding {name}: {e}")),
    }
}

/// The nodes of a question: their names for an extender that knows the nodes, else all of them.
fn nodes_of(extender: &Extender, names: &[String], cluster: &Cache) -> (Value, Value) {
    if extender.config.node_cache_capable {
        return (Value::Null, json!(names));
    }
    let nodes: Vec<Arc<Node>> =
        names.iter().filter_map(|name| cluster.node(name)).map(|n| n.node.clone()).collect();
    let items: Vec<&Node> = nodes.iter().map(|n| &**n).collect();
    (json!({"metadata": {}, "items": items}), Value::Null)
}

fn filtered(extender: &Extender, asked: &[String], answer: Value) -> Result<Filtered, String> {
    let mut fields = lowercase(answer);
    let error: String = field(&mut fields, "error")?;
    if !error.is_empty() {
        return Err(error);
    }
    let names: Option<Vec<String>> = field(&mut fields, "nodenames")?;
    let nodes = if let Some(names) = names.filter(|_| extender.config.node_cache_capable) {
        if let Some(other) = names.iter().find(|n| !asked.contains(n)) {
            let (url, node) = (quote(&extender.config.url_prefix), quote(other));
            return Err(format!(
                "extender {url} claims a filtered node {node} which is not found in the input node list"
            ));
        }
        names
    } else {
        let list: Option<Value> = field(&mut fields, "nodes")?;
        let items = list.map(lowercase).and_then(|mut list| list.remove("items"));
        let items: Vec<Value> = items.and_then(|i| i.as_array().cloned()).unwrap_or_default();
        items.iter().filter_map(|n| n["metadata"]["name"].as_str()).map(str::to_owned).collect()
    };
    Ok(Filtered {
        nodes,
        failed: field(&mut fields, "failednodes")?,
        unresolvable: field(&mut fields, "failedandunresolvablenodes")?,
    })
}

/// The scores in an answer, by node.
fn scores(answer: Value) -> Result<Vec<(String, i64)>, String> {
    let Value::Array(all) = answer else { return Err("the answer is no list".to_owned()) };
    let one = |value: Value| {
        let mut fields = lowercase(value);
        Ok((field(&mut fields, "host")?, field(&mut fields, "score")?))
    };
    all.into_iter().map(one).collect()
}

/// The victims in an answer, as Pods of the cluster.
fn victims(extender: &Extender, answer: Value, cluster: &Cache) -> Result<Vec<Candidate>, String> {
    let mut fields = lowercase(answer);
    let by_node: BTreeMap<String, Value> = field(&mut fields, "nodenametometavictims")?;
    let mut candidates = Vec::new();
    for (name, said) in by_node {
        let mut said = lowercase(said);
        let pods: Vec<Value> = field(&mut said, "pods")?;
        let violations: i64 = field(&mut said, "numpdbviolations")?;
        let node = cluster
            .node(&name)
            .ok_or_else(|| format!("nodeinfo not found for node name {}", quote(&name)))?;
        let mut found = Vec::new();
        for pod in pods {
            let uid: String = field(&mut lowercase(pod), "uid")?;
            let there = node.pods.get(uid.as_str()).cloned();
            found.push(there.ok_or_else(|| {
                let url = &extender.config.url_prefix;
                format!(
                    "extender: {url} claims to preempt pod (UID: {uid}) on node: {name}, but the pod is not found on that node"
                )
            })?);
        }
        let violations = usize::try_from(violations).unwrap_or(0);
        candidates.push(Candidate { node: name, victims: found, violations });
    }
    Ok(candidates)
}

impl Extender {
    async fn send(&self, verb: &str, question: &Value) -> Result<Value, String> {
        let body = serde_json::to_vec(question).map_err(|e| e.to_string())?;
        let answer = self.poster.post(verb, body.into()).await.map_err(|e| match e {
            client::PostError::Refused(code) => {
                format!("failed {verb} with extender at URL {}, code {code}", self.poster.url(verb))
            }
            other => other.to_string(),
        })?;
        serde_json::from_slice(&answer).map_err(|e| e.to_string())
    }

    async fn filter(&self, pod: &PodInfo, names: &[String], cluster: &Cache) -> Result<Filtered, String> {
        let (nodes, node_names) = nodes_of(self, names, cluster);
        let question = json!({"Pod": pod.whole(), "Nodes": nodes, "NodeNames": node_names});
        filtered(self, names, self.send(&self.config.filter_verb, &question).await?)
    }

    async fn prioritize(
        &self,
        pod: &PodInfo,
        names: &[String],
        cluster: &Cache,
    ) -> Result<Vec<(String, i64)>, String> {
        let (nodes, node_names) = nodes_of(self, names, cluster);
        let question = json!({"Pod": pod.whole(), "Nodes": nodes, "NodeNames": node_names});
        scores(self.send(&self.config.prioritize_verb, &question).await?)
    }

    async fn preempt(
        &self,
        pod: &PodInfo,
        candidates: &[Candidate],
        cluster: &Cache,
        client: &Client,
    ) -> Result<Vec<Candidate>, String> {
        let mut by_node = Map::new();
        for candidate in candidates {
            let mut pods = Vec::new();
            for victim in &candidate.victims {
                pods.push(if self.config.node_cache_capable {
                    json!({"UID": victim.uid()})
                } else {
                    // Of Pods that have a node little is kept here.
                    let whole = client.api::<Pod>(victim.namespace()).get(victim.name()).await;
                    json!(whole.map_err(|e| e.message)?)
                });
            }
            let victims = json!({"Pods": pods, "NumPDBViolations": candidate.violations});
            by_node.insert(candidate.node.clone(), victims);
        }
        let field =
            if self.config.node_cache_capable { "NodeNameToMetaVictims" } else { "NodeNameToVictims" };
        let question = json!({"Pod": pod.whole(), (field): by_node});
        victims(self, self.send(&self.config.preempt_verb, &question).await?, cluster)
    }

    /// Binds a Pod to a node.
    ///
    /// # Errors
    /// If that did not work; the Pod is tried again.
    pub async fn bind(&self, pod: &PodInfo, node: &str) -> Result<(), Unbound> {
        let question = json!({
            "PodName": pod.name(), "PodNamespace": pod.namespace(), "PodUID": pod.uid(), "Node": node,
        });
        let failed = |why: String| Unbound::Failed(api::Status::failure(500, "InternalError", why));
        let answer = self.send(&self.config.bind_verb, &question).await.map_err(failed)?;
        let error: String = field(&mut lowercase(answer), "error").map_err(failed)?;
        if error.is_empty() { Ok(()) } else { Err(failed(error)) }
    }
}

impl Talk {
    /// Asks a question.
    pub async fn ask(&self, question: &Question, pod: &PodInfo, cluster: &Cache, client: &Client) -> Answer {
        let gone = || format!("there is no such {NAME}");
        match question {
            Question::Filter { extender, nodes } => Answer::Filtered(match self.extenders().get(*extender) {
                Some(extender) => extender.filter(pod, nodes, cluster).await,
                None => Err(gone()),
            }),
            Question::Prioritize { nodes } => Answer::Prioritized(self.scores_of(pod, nodes, cluster).await),
            Question::Preempt { extender, candidates } => {
                Answer::Preempted(match self.extenders().get(*extender) {
                    Some(extender) => extender.preempt(pod, candidates, cluster, client).await,
                    None => Err(gone()),
                })
            }
        }
    }

    /// Asks all extenders that score at the same time. Those that fail have no say.
    async fn scores_of(&self, pod: &PodInfo, nodes: &[String], cluster: &Cache) -> BTreeMap<String, i64> {
        let asked =
            self.extenders().iter().filter(|e| !e.config.prioritize_verb.is_empty() && e.concerns(pod));
        let all =
            futures::future::join_all(asked.map(async |e| (e, e.prioritize(pod, nodes, cluster).await)));
        let mut sums = BTreeMap::new();
        for (extender, said) in all.await {
            match said {
                Ok(said) => {
                    for (node, score) in said {
                        let sum: &mut i64 = sums.entry(node).or_default();
                        *sum = sum.saturating_add(score.saturating_mul(extender.config.weight));
                    }
                }
                Err(error) => {
                    let url = extender.config.url_prefix.as_str();
                    tracing::debug!(url, error, "an extender gave no scores");
                }
            }
        }
        sums
    }
}
