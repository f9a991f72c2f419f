//! Users and access rules (ACL 2.0).

use std::borrow::Cow;

use crate::header;

header! {
    /// AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER
    /// (`CreateUserRequestHeader` and its siblings).
    pub struct UserRequest<'a> {
        /// The user.
        username: Cow<'a, str> = "username", required;
    }
}

header! {
    /// AUTH_LIST_USER (`ListUsersRequestHeader`).
    pub struct ListUserRequest<'a> {
        /// Part of the user name.
        filter: Option<Cow<'a, str>> = "filter", optional;
    }
}

header! {
    /// AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_DELETE_ACL, AUTH_GET_ACL (`CreateAclRequestHeader`
    /// and its siblings).
    pub struct AclRequest<'a> {
        /// Whose rules, as `User:name`.
        subject: Cow<'a, str> = "subject", required;
        /// To delete: `Custom` or `Default`.
        policy_type: Option<Cow<'a, str>> = "policyType", optional;
        /// To delete: only this resource.
        resource: Option<Cow<'a, str>> = "resource", optional;
    }
}

header! {
    /// AUTH_LIST_ACL (`ListAclsRequestHeader`).
    pub struct ListAclRequest<'a> {
        /// Part of the subject.
        subject_filter: Option<Cow<'a, str>> = "subjectFilter", optional;
        /// Part of the resource.
        resource_filter: Option<Cow<'a, str>> = "resourceFilter", optional;
    }
}
