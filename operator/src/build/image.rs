//! Image references: the operator's own, changed by what a cluster asks for.

use super::Defaults;
use crate::crd::cluster::RocketMQClusterSpec;

/// The broker image of a cluster.
pub fn broker(spec: &RocketMQClusterSpec, defaults: &Defaults) -> String {
    reference(spec, spec.image.broker.as_deref(), &defaults.broker_image)
}

/// The name server image of a cluster.
pub fn name_server(spec: &RocketMQClusterSpec, defaults: &Defaults) -> String {
    reference(spec, spec.image.name_server.as_deref(), &defaults.name_server_image)
}

fn reference(spec: &RocketMQClusterSpec, whole: Option<&str>, default: &str) -> String {
    if let Some(whole) = whole {
        return whole.to_owned();
    }
    let parts = Parts::of(default);
    let repository = match &spec.image.registry {
        Some(registry) => {
            let name = parts.repository.rsplit('/').next().unwrap_or(parts.repository);
            format!("{registry}{name}")
        }
        None => parts.repository.to_owned(),
    };
    match &spec.version {
        Some(version) => format!("{repository}:{version}"),
        None => format!("{repository}{}", parts.rest),
    }
}

/// The tag of a reference, else its digest, else `latest`: what it calls its version.
pub fn version(reference: &str) -> &str {
    let rest = Parts::of(reference).rest;
    match rest.split_once('@') {
        Some(("", digest)) => digest,
        Some((tag, _)) => &tag[1..],
        None => rest.strip_prefix(':').unwrap_or("latest"),
    }
}

struct Parts<'a> {
    repository: &'a str,
    /// `:tag`, `@digest`, both or nothing.
    rest: &'a str,
}

impl<'a> Parts<'a> {
    fn of(reference: &'a str) -> Self {
        // A colon before the last slash belongs to the registry's port.
        let name = reference.rfind('/').map_or(0, |slash| slash + 1);
        let end = reference[name..].find([':', '@']).map_or(reference.len(), |i| name + i);
        Self { repository: &reference[..end], rest: &reference[end..] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::tests::{cluster, defaults};

    #[test]
    fn the_most_exact_wish_wins() {
        let mut spec = cluster().spec;
        spec.version = None;
        assert_eq!(broker(&spec, &defaults()), "rocketmq-rs/broker:0.1.0");
        spec.version = Some("2.0".to_owned());
        assert_eq!(broker(&spec, &defaults()), "rocketmq-rs/broker:2.0");
        spec.image.registry = Some("localhost:5000/mq/".to_owned());
        assert_eq!(name_server(&spec, &defaults()), "localhost:5000/mq/namesrv:2.0");
        spec.version = None;
        assert_eq!(broker(&spec, &defaults()), "localhost:5000/mq/broker:0.1.0");
        spec.image.broker = Some("x/y@sha256:ab".to_owned());
        assert_eq!(broker(&spec, &defaults()), "x/y@sha256:ab");
    }

    #[test]
    fn versions_are_found_in_any_reference() {
        assert_eq!(version("localhost:5000/broker"), "latest");
        assert_eq!(version("localhost:5000/broker:1.2"), "1.2");
        assert_eq!(version("broker:1.2@sha256:ab"), "1.2");
        assert_eq!(version("broker@sha256:ab"), "sha256:ab");
    }
}
