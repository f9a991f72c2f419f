//! The version number a peer sends with every frame: the ordinal of RocketMQ's `MQVersion` enum.
//!
//! From 3.0.7 on each release takes two ordinals, first its snapshot, then itself.

use std::borrow::Cow;

/// The version this project announces: 5.3.3. Clients enable what 5.x can do by it, so it is in
/// every answer.
pub const CURRENT: i32 = V5_3_3;

/// 3.0.7 snapshot: from here on a consumer can be asked where it stands, and told to move.
pub const V3_0_7_SNAPSHOT: i32 = 28;
/// 3.1.8 snapshot: from here on a consumer can be asked what it is doing, and given a message.
pub const V3_1_8_SNAPSHOT: i32 = 62;
/// 4.1.0: below it, Java clients refuse SQL92 filters.
pub const V4_1_0: i32 = 233;
/// 4.9.4: from here on a client's JSON reader takes quoted integer keys only.
pub const V4_9_4: i32 = 401;
/// 5.0.0: from here on a broker's compressed registration ends with queue mappings.
pub const V5_0_0: i32 = 413;
/// 5.3.3.
pub const V5_3_3: i32 = 479;
/// What RocketMQ calls any version beyond its list.
pub const HIGHER_VERSION: i32 = 612;

/// The name of a version, such as `V5_3_3`, as the Java broker shows it to people.
///
/// Versions before 4.0.0, which no client still in use sends, are shown as their number.
pub fn name_of(version: i32) -> Cow<'static, str> {
    // From 4.0.0 on the enum is regular: ten minor versions a major one, ten patches a minor one,
    // and of each first the snapshot, then the release.
    const V4_0_0_SNAPSHOT: i32 = 212;
    if version >= HIGHER_VERSION {
        return Cow::Borrowed("HIGHER_VERSION");
    }
    if version < V4_0_0_SNAPSHOT {
        return Cow::Owned(version.to_string());
    }
    let steps = version - V4_0_0_SNAPSHOT;
    let (major, minor, patch) = (4 + steps / 200, steps / 20 % 10, steps % 20 / 2);
    let suffix = if steps % 2 == 0 { "_SNAPSHOT" } else { "" };
    Cow::Owned(format!("V{major}_{minor}_{patch}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ordinals_have_their_names() {
        let known = [
            (213, "V4_0_0"),
            (232, "V4_1_0_SNAPSHOT"),
            (233, "V4_1_0"),
            (317, "V4_5_2"),
            (333, "V4_6_0"),
            (397, "V4_9_2"),
            (409, "V4_9_8"),
            (413, "V5_0_0"),
            (441, "V5_1_4"),
            (453, "V5_2_0"),
            (479, "V5_3_3"),
            (612, "HIGHER_VERSION"),
            (9999, "HIGHER_VERSION"),
            (3, "3"),
            (-1, "-1"),
        ];
        for (version, name) in known {
            assert_eq!(name_of(version), name);
        }
    }
}
