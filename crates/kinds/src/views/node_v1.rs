//! `io.k8s.api.node.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { Overhead overhead 646 {
    0 POD_FIXED pod_fixed: MapView<'a, &'a str>;
} }

view! { RuntimeClass runtime_class 647 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 HANDLER handler: &'a str;
    4 OVERHEAD overhead: Option<Overhead<'a>>;
    5 SCHEDULING scheduling: Option<Scheduling<'a>>;
} }

view! { RuntimeClassList runtime_class_list 648 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, RuntimeClass<'a>>;
} }

view! { Scheduling scheduling 649 {
    0 NODE_SELECTOR node_selector: MapView<'a, &'a str>;
    1 TOLERATIONS tolerations: ListView<'a, core_v1::Toleration<'a>>;
} }
