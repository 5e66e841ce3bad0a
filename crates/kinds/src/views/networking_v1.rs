//! `io.k8s.api.networking.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { HTTPIngressPath http_ingress_path 588 {
    0 PATH path: &'a str;
    1 PATH_TYPE path_type: Option<&'a str>;
    2 BACKEND backend: IngressBackend<'a>;
} }

view! { HTTPIngressRuleValue http_ingress_rule_value 589 {
    0 PATHS paths: ListView<'a, HTTPIngressPath<'a>>;
} }

view! { IPAddress ip_address 590 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: IPAddressSpec<'a>;
} }

view! { IPAddressList ip_address_list 591 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, IPAddress<'a>>;
} }

view! { IPAddressSpec ip_address_spec 592 {
    0 PARENT_REF parent_ref: Option<ParentReference<'a>>;
} }

view! { IPBlock ip_block 593 {
    0 CIDR cidr: &'a str;
    1 EXCEPT except: ListView<'a, &'a str>;
} }

view! { Ingress ingress 594 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: IngressSpec<'a>;
    4 STATUS status: IngressStatus<'a>;
} }

view! { IngressBackend ingress_backend 595 {
    0 SERVICE service: Option<IngressServiceBackend<'a>>;
    1 RESOURCE resource: Option<core_v1::TypedLocalObjectReference<'a>>;
} }

view! { IngressClass ingress_class 596 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: IngressClassSpec<'a>;
} }

view! { IngressClassList ingress_class_list 597 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, IngressClass<'a>>;
} }

view! { IngressClassParametersReference ingress_class_parameters_reference 598 {
    0 API_GROUP api_group: Option<&'a str>;
    1 KIND kind: &'a str;
    2 NAME name: &'a str;
    3 SCOPE scope: Option<&'a str>;
    4 NAMESPACE namespace: Option<&'a str>;
} }

view! { IngressClassSpec ingress_class_spec 599 {
    0 CONTROLLER controller: &'a str;
    1 PARAMETERS parameters: Option<IngressClassParametersReference<'a>>;
} }

view! { IngressList ingress_list 600 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Ingress<'a>>;
} }

view! { IngressLoadBalancerIngress ingress_load_balancer_ingress 601 {
    0 IP ip: &'a str;
    1 HOSTNAME hostname: &'a str;
    2 PORTS ports: ListView<'a, IngressPortStatus<'a>>;
} }

view! { IngressLoadBalancerStatus ingress_load_balancer_status 602 {
    0 INGRESS ingress: ListView<'a, IngressLoadBalancerIngress<'a>>;
} }

view! { IngressPortStatus ingress_port_status 603 {
    0 PORT port: i64;
    1 PROTOCOL protocol: &'a str;
    2 ERROR error: Option<&'a str>;
} }

view! { IngressRule ingress_rule 604 {
    0 HOST host: &'a str;
    1 HTTP http: Option<HTTPIngressRuleValue<'a>>;
} }

view! { IngressServiceBackend ingress_service_backend 605 {
    0 NAME name: &'a str;
    1 PORT port: ServiceBackendPort<'a>;
} }

view! { IngressSpec ingress_spec 606 {
    0 INGRESS_CLASS_NAME ingress_class_name: Option<&'a str>;
    1 DEFAULT_BACKEND default_backend: Option<IngressBackend<'a>>;
    2 TLS tls: ListView<'a, IngressTLS<'a>>;
    3 RULES rules: ListView<'a, IngressRule<'a>>;
} }

view! { IngressStatus ingress_status 607 {
    0 LOAD_BALANCER load_balancer: IngressLoadBalancerStatus<'a>;
} }

view! { IngressTLS ingress_tls 608 {
    0 HOSTS hosts: ListView<'a, &'a str>;
    1 SECRET_NAME secret_name: &'a str;
} }

view! { NetworkPolicy network_policy 609 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: NetworkPolicySpec<'a>;
} }

view! { NetworkPolicyEgressRule network_policy_egress_rule 610 {
    0 PORTS ports: ListView<'a, NetworkPolicyPort<'a>>;
    1 TO to: ListView<'a, NetworkPolicyPeer<'a>>;
} }

view! { NetworkPolicyIngressRule network_policy_ingress_rule 611 {
    0 PORTS ports: ListView<'a, NetworkPolicyPort<'a>>;
    1 FROM from: ListView<'a, NetworkPolicyPeer<'a>>;
} }

view! { NetworkPolicyList network_policy_list 612 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, NetworkPolicy<'a>>;
} }

view! { NetworkPolicyPeer network_policy_peer 613 {
    0 POD_SELECTOR pod_selector: Option<meta_v1::LabelSelector<'a>>;
    1 NAMESPACE_SELECTOR namespace_selector: Option<meta_v1::LabelSelector<'a>>;
    2 IP_BLOCK ip_block: Option<IPBlock<'a>>;
} }

view! { NetworkPolicyPort network_policy_port 614 {
    0 PROTOCOL protocol: Option<&'a str>;
    1 PORT port: Option<IntOrStr<'a>>;
    2 END_PORT end_port: Option<i64>;
} }

view! { NetworkPolicySpec network_policy_spec 615 {
    0 POD_SELECTOR pod_selector: meta_v1::LabelSelector<'a>;
    1 INGRESS ingress: ListView<'a, NetworkPolicyIngressRule<'a>>;
    2 EGRESS egress: ListView<'a, NetworkPolicyEgressRule<'a>>;
    3 POLICY_TYPES policy_types: ListView<'a, &'a str>;
} }

view! { ParentReference parent_reference 616 {
    0 GROUP group: &'a str;
    1 RESOURCE resource: &'a str;
    2 NAMESPACE namespace: &'a str;
    3 NAME name: &'a str;
} }

view! { ServiceBackendPort service_backend_port 617 {
    0 NAME name: &'a str;
    1 NUMBER number: i64;
} }

view! { ServiceCIDR service_cidr 618 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ServiceCIDRSpec<'a>;
    4 STATUS status: ServiceCIDRStatus<'a>;
} }

view! { ServiceCIDRList service_cidr_list 619 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ServiceCIDR<'a>>;
} }

view! { ServiceCIDRSpec service_cidr_spec 620 {
    0 CIDRS cidrs: ListView<'a, &'a str>;
} }

view! { ServiceCIDRStatus service_cidr_status 621 {
    0 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
} }
