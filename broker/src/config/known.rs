//! RocketMQ's other keys: accepted so that existing files do not warn, without any effect here.
//!
//! They size Java's thread pools and buffers, belong to features that this broker does not have
//! (switching one of those on is refused, see `refused.rs`), or are dead in Java too.

/// Whether RocketMQ (4.9 to 5.3 and the branch after it) knows the key although it has no effect
/// here.
pub fn is_known_without_effect(key: &str) -> bool {
    known_without_effect().any(|known| known == key)
}

/// All those keys, in no order.
pub fn known_without_effect() -> impl Iterator<Item = &'static str> {
    GROUPS.into_iter().flat_map(str::split_ascii_whitespace)
}

const GROUPS: [&str; 9] = [NETWORK, THREADS, CONSUME, POP, TIMER, STORE, HA, SECURITY, METRICS];

const NETWORK: &str = "
    fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval
    rmqAddressServerDomain rmqAddressServerSubGroup updateNameServerAddrPeriod forceRegister
    compressedRegister enableSingleTopicRegister enableSplitRegistration splitRegistrationSize
    compatibleWithOldNameSrv rocketmqHome messageStorePlugIn serverWorkerThreads
    serverSelectorThreads serverCallbackExecutorThreads serverOnewaySemaphoreValue
    serverAsyncSemaphoreValue serverSocketSndBufSize serverSocketRcvBufSize serverSocketBacklog
    writeBufferHighWaterMark writeBufferLowWaterMark serverPooledByteBufAllocatorEnable
    useEpollNativeSelector enableShutdownGracefully clientWorkerThreads
    clientCallbackExecutorThreads connectTimeoutMillis clientChannelMaxIdleTimeSeconds
    serverNettyWorkerGroupEnable channelNotActiveInterval clientSocketSndBufSize
    clientSocketRcvBufSize clientPooledByteBufAllocatorEnable clientCloseSocketIfTimeout
    clientOnewaySemaphoreValue clientAsyncSemaphoreValue useTLS socksProxyConfig
    disableCallbackExecutor disableNettyWorkerGroup maxReconnectIntervalTimeSeconds
    enableReconnectForGoAway scanAvailableNameSrv isScanAvailableNameSrv inBrokerContainer
    isInBrokerContainer isBrokerContainer brokerContainer enableNetWorkFlowControl
    enableFastChannelEventProcess printChannelGroups printChannelGroupsMinNum";

const THREADS: &str = "
    sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums
    litePullMessageThreadPoolNums ackMessageThreadPoolNums processReplyMessageThreadPoolNums
    queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums
    consumerManageThreadPoolNums heartbeatThreadPoolNums endTransactionThreadPoolNums
    loadBalanceProcessorThreadPoolNums sendThreadPoolQueueCapacity putThreadPoolQueueCapacity
    pullThreadPoolQueueCapacity litePullThreadPoolQueueCapacity ackThreadPoolQueueCapacity
    replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity adminBrokerThreadPoolQueueCapacity
    clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
    heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity
    loadBalanceThreadPoolQueueCapacity brokerFastFailureEnable waitTimeMillsInSendQueue
    waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue
    waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    asyncSendEnable enableDetailStat accountStatsEnable accountStatsPrintZeroValues
    autoDeleteUnusedStats maxStatsIdleTimeInMinutes commercialBaseCount commercialSizePerMsg
    commercialEnable commercialTimerCount commercialTransCount commercialBigCount highSpeedMode
    isolateLogEnable filterServerNums";

const CONSUME: &str = "
    clearRetryTopicWhenDeleteTopic realTimeNotifyConsumerChange flushConsumerOffsetHistoryInterval
    delayOffsetUpdateVersionStep enableCleanExpiredOffset enableBroadcastOffsetStore
    broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond rejectPullConsumerEnable
    disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold
    lockInStrictMode subscriptionExpiredTimeout
    useStaticSubscription enableRegisterProducer
    defaultMessageRequestMode defaultPopShareQueueNum
    loadBalancePollNameServerInterval recallMessageEnable allowRecallWhenBrokerNotWriteable
    transferMsgByHeap cleanOfflineBrokerInterval forwardTimeout coldCtrStrategyEnable
    usePIDColdCtrStrategy cgColdReadThreshold globalColdReadThreshold enableLmqStats
    configManagerVersion enableSplitMetadata splitMetadataSize";

const POP: &str = "
    popPollingSize popPollingMapSize maxPopPollingSize popLongPollingForceNotifyInterval
    enablePopBufferMerge popCkStayBufferTime popCkStayBufferTimeOut popCkMaxBufferSize
    popCkOffsetMaxQueueSize enablePopBatchAck enablePopLog initPopOffsetByCheckMsgInMem
    retrieveMessageFromPopRetryTopicV1 enableRetryTopicV2 popFromRetryProbability reviveInterval
    reviveMaxSlow reviveScanTime reviveAckWaitMs enableSkipLongAwaitingAck
    popReviveMaxReturnSizePerRead popReviveMaxAttemptTimes skipWhenCKRePutReachMaxTimes
    appendAckAsync appendCkAsync popResponseReturnActualRetryTopic enablePopMessageThreshold
    popInflightMessageThreshold popConsumerFSServiceInit popConsumerKVServiceInit
    popConsumerKVServiceEnable popConsumerKVServiceLog enableNotifyBeforePopCalculateLag
    enableNotifyAfterPopOrderLockRelease popPollingMapExpireTimeSeconds";

const TIMER: &str = "
    enableScheduleMessageStats enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked maxDelayTime timerPrecisionMs timerMaxDelaySec
    timerRollWindowSlot timerFlushIntervalMs timerGetMessageThreadNum timerPutMessageThreadNum
    timerCongestNumEachSlot timerInterceptDelayLevel timerStopEnqueue timerStopDequeue
    timerSkipUnknownError timerWarmEnable timerEnableDisruptor timerEnableRetryUntilSuccess
    timerEnableCheckMetrics timerCheckMetricsWhen timerMetricSmallThreshold
    timerProgressLogIntervalMs timerColdDataCheckIntervalMs mappedFileSizeTimerLog
    disappearTimeAfterStart";

const STORE: &str = "
    storePathDLedgerCommitLog storePathBrokerIdentity storeType
        maxTopicLength
    enabledAppendPropCRC forceVerifyPropCRC putMessageTimeout
            fastFailIfNoBufferInStorePool wakeFlushWhenPutMessage
    useReentrantLockWhenPutMessage useABSLock topicQueueLockNum maxAsyncPutMessageRequests
    mappedFileSwapEnable
    maxRecoveryCommitlogFiles recoverConcurrently recoverThreadPoolNums duplicationEnable
    travelCqFileNumWhenGetMessage
    pullBatchMaxMessageCount diskFallRecorded messageIndexSafe enableMultiDispatch enableLmq
    maxLmqConsumeQueueNum enableCompaction compactionMappedFileSize compactionCqMappedFileSize
    compactionScheduleInternal compactionThreadNum maxOffsetMapSize
    enableBuildConsumeQueueConcurrently batchDispatchRequestThreadPoolNums
    debugLockEnable coldDataFlowControlEnable coldDataScanEnable dataReadAheadEnable
    readUnCommitted putMsgIndexHightWater maxBatchDeleteFilesNum dispatchCqThreads
    dispatchCqCacheNum enableAsyncReput recheckReputOffsetFromCq correctLogicMinOffsetSleepInterval
    correctLogicMinOffsetForceInterval commitLogForceSwapMapInterval commitLogSwapMapInterval
    commitLogSwapMapReserveFileNum logicQueueForceSwapMapInterval logicQueueSwapMapInterval
    logicQueueSwapMapReserveFileNum cleanSwapedMapInterval searchBcqByCacheEnable
    dispatchFromSenderThread maxConsumeQueueScan sampleCountThreshold sampleSteps
    accessMessageInMemoryHotRatio putConsumeQueueDataByFileChannel
    spinLockCollisionRetreatOptimalDegree cleanRocksDBDirtyCQIntervalMin statRocksDBCQIntervalSec
    memTableFlushIntervalMs realTimePersistRocksDBConfig enableRocksDBLog
    rocksdbCQDoubleWriteEnable bottomMostCompressionTypeForConsumeQueueStore
    rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
    writeWithoutMmap enableRunningFlagsInFlush enableAcceleratedRecovery";

const HA: &str = "
    haSlaveFallbehindMax enableAutoInSyncReplicas
    allAckInSyncStateSet syncMasterFlushOffsetWhenStartup maxSlaveResendLength
    maxChecksumRange replicasPerDiskPartition logicalDiskSpaceCleanForciblyThreshold
    enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId enableBatchPush
    isEnableBatchPush enableSlaveActingMaster enableRemoteEscape skipPreOnline
    brokerHeartbeatInterval brokerNotActiveTimeoutMillis sendHeartbeatTimeoutMillis
    syncBrokerMemberGroupPeriod enableControllerMode controllerAddr fetchControllerAddrByDnsLookup
    syncBrokerMetadataPeriod checkSyncStateSetPeriod syncControllerMetadataPeriod
    controllerHeartBeatTimeoutMills brokerElectionPriority";

const SECURITY: &str = "
    aclEnable authenticationEnabled authorizationEnabled authenticationProvider
    authenticationMetadataProvider authenticationStrategy authorizationProvider
    authorizationMetadataProvider authorizationStrategy authenticationWhitelist
    authorizationWhitelist initAuthenticationUser innerClientAuthenticationCredentials
    migrateAuthFromV1Enabled authConfigPath configName clusterName userCacheMaxNum
    userCacheExpiredSecond userCacheRefreshSecond aclCacheMaxNum aclCacheExpiredSecond
    aclCacheRefreshSecond statefulAuthenticationCacheMaxNum
    statefulAuthenticationCacheExpiredSecond statefulAuthorizationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond";

const METRICS: &str = "
    metricsOtelCardinalityLimit metricsGrpcExporterTarget
    metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills
    metricLoggingExporterIntervalInMills
    metricsLabel metricsInDelta estimateAccumulation enableConnectionMetrics
    enableLagAndDlqMetrics enableMessageStoreMetrics enablePopMetrics enableRemotingMetrics
    enableRequestMetrics enableStatsMetrics enableTransactionMetrics";
