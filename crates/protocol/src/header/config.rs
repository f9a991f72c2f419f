//! Configuration of broker and name server, read and changed while they run.

use std::borrow::Cow;

use crate::header;

header! {
    /// Answer to GET_BROKER_CONFIG (`GetBrokerConfigResponseHeader`); the keys are in the body.
    pub struct GetBrokerConfigResponse<'a> {
        /// The broker's data version, as JSON.
        version: Cow<'a, str> = "version", required;
    }
}
