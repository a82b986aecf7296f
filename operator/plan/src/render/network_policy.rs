//! The job's NetworkPolicy: what protects the ranks' own traffic, which is not encrypted.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Settings, metadata};
use crate::names;
use crate::validate::ValidatedJob;

/// Admits the job's own pods on every port, the operator to the agents, and the scraper to the metrics.
pub fn network_policy(job: &ValidatedJob, settings: &Settings) -> NetworkPolicy {
    let own = selector(&[(names::JOB_LABEL.to_owned(), job.name.clone())].into());
    let namespace: BTreeMap<String, String> =
        [("kubernetes.io/metadata.name".to_owned(), settings.operator_namespace.clone())].into();
    let peer = |pods: Option<LabelSelector>, namespaces: Option<LabelSelector>| NetworkPolicyPeer {
        pod_selector: pods,
        namespace_selector: namespaces,
        ip_block: None,
    };
    let rule = |from: NetworkPolicyPeer, port: Option<i32>| NetworkPolicyIngressRule {
        from: Some(vec![from]),
        ports: port.map(|port| {
            vec![NetworkPolicyPort {
                port: Some(IntOrString::Int(port)),
                protocol: Some("TCP".to_owned()),
                end_port: None,
            }]
        }),
    };
    NetworkPolicy {
        metadata: metadata(job, job.name.clone(), names::labels(&job.name)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(own.clone()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![
                rule(peer(Some(own), None), None),
                rule(
                    peer(Some(selector(&settings.operator_labels)), Some(selector(&namespace))),
                    Some(names::AGENT_PORT),
                ),
                rule(
                    peer(None, Some(selector(&settings.scraper_namespace_labels))),
                    Some(names::METRICS_PORT),
                ),
            ]),
            egress: None,
        }),
    }
}

fn selector(labels: &BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels.clone()), match_expressions: None }
}
