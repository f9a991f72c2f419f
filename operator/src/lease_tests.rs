use super::*;
use crate::testing::ApiServer;
use serde_json::json;

fn candidate(server: &ApiServer, identity: &str) -> Candidate {
    Candidate::new(server.client(), "ns", "lease", identity)
}

fn holder(server: &ApiServer) -> String {
    let lease = server.value("leases", "lease").expect("the lease");
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_first_one_leads_and_the_second_waits() {
    let server = ApiServer::default();
    let stop = CancellationToken::new();
    let a = candidate(&server, "a");
    let since = a.acquire(&stop).await.expect("a leads");
    let keep = tokio::spawn({
        let (a, stop) = (a.clone(), stop.clone());
        async move { a.keep(since, &stop).await }
    });
    // For longer than a lease lasts, the second one does not get it.
    let second = timeout(LEASE_DURATION * 4, candidate(&server, "b").acquire(&stop)).await;
    assert!(second.is_err());
    assert_eq!(holder(&server), "a");
    stop.cancel();
    assert_eq!(keep.await.expect("joined"), End::Released);
    assert_eq!(holder(&server), "");
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let server = ApiServer::default();
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let a = candidate(&server, "a");
    let since = a.acquire(&stop_a).await.expect("a leads");
    stop_a.cancel();
    assert_eq!(a.keep(since, &stop_a).await, End::Released);
    let began = Instant::now();
    candidate(&server, "b").acquire(&stop_b).await.expect("b leads");
    assert!(began.elapsed() <= RETRY_PERIOD);
    let lease = server.value("leases", "lease").expect("the lease");
    assert_eq!(lease["spec"]["leaseTransitions"], json!(2));
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_followed_only_after_the_whole_duration() {
    let server = ApiServer::default();
    let stop = CancellationToken::new();
    candidate(&server, "a").acquire(&stop).await.expect("a leads");
    let began = Instant::now();
    candidate(&server, "b").acquire(&stop).await.expect("b leads");
    assert!(began.elapsed() >= LEASE_DURATION, "{:?}", began.elapsed());
    assert!(began.elapsed() <= LEASE_DURATION + RETRY_PERIOD * 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_gives_up_before_the_lease_ends() {
    let server = ApiServer::default();
    let stop = CancellationToken::new();
    let a = candidate(&server, "a");
    let since = a.acquire(&stop).await.expect("a leads");
    server.refuse_writes_to(Some("leases"));
    assert_eq!(a.keep(since, &stop).await, End::Lost);
    let after = since.elapsed();
    assert!(after >= RENEW_DEADLINE && after < LEASE_DURATION, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_replaced_knows_it_at_its_next_renewal() {
    let server = ApiServer::default();
    let stop = CancellationToken::new();
    let a = candidate(&server, "a");
    let since = a.acquire(&stop).await.expect("a leads");
    server.edit("leases", "lease", |lease| lease["spec"]["holderIdentity"] = json!("b"));
    assert_eq!(a.keep(since, &stop).await, End::Lost);
    assert_eq!(holder(&server), "b");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_holder_takes_its_own_lease_again_at_once() {
    let server = ApiServer::default();
    let stop = CancellationToken::new();
    candidate(&server, "a").acquire(&stop).await.expect("a leads");
    let began = Instant::now();
    candidate(&server, "a").acquire(&stop).await.expect("a leads again");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_asked_to_stop() {
    let server = ApiServer::default();
    let stop = CancellationToken::new();
    candidate(&server, "a").acquire(&stop).await.expect("a leads");
    stop.cancel();
    assert!(candidate(&server, "b").acquire(&stop).await.is_none());
}
