// Curator's recipes and Apache's Java client, one method a recipe, against the server in args[0].
// Prints "ok <name>" for each that works and "failed <name>" with a stack trace for each that does
// not. Run from source: java -cp "jars/*" Recipes.java 127.0.0.1:2181

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

public class Recipes {
    static final int SECONDS = 30;
    static String hosts;

    public static void main(String[] args) throws Exception {
        hosts = args[0];
        for (Method method : Recipes.class.getDeclaredMethods()) {
            if (!method.getName().startsWith("recipe")) {
                continue;
            }
            String name = method.getName().substring("recipe".length());
            try {
                method.invoke(null);
                System.out.println("ok " + name);
            } catch (InvocationTargetException error) {
                System.out.println("failed " + name);
                error.getCause().printStackTrace(System.out);
            }
        }
        System.exit(0);
    }

    static CuratorFramework curator() throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(hosts, 20_000, 15_000, new RetryOneTime(100));
        client.start();
        check(client.blockUntilConnected(SECONDS, TimeUnit.SECONDS), "connected");
        return client;
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object found, Object expected) {
        check(expected.equals(found), "expected " + expected + ", found " + found);
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(Condition condition, String what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "in time: " + what);
            Thread.sleep(10);
        }
    }

    // -- Curator

    static void recipeMutex() throws Exception {
        int[] counter = {0};
        ExecutorService threads = Executors.newFixedThreadPool(3);
        List<Future<?>> results = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            results.add(threads.submit(() -> {
                try (CuratorFramework client = curator()) {
                    InterProcessMutex mutex = new InterProcessMutex(client, "/mutex");
                    for (int j = 0; j < 15; j++) {
                        mutex.acquire();
                        mutex.acquire();
                        int seen = counter[0];
                        Thread.yield();
                        counter[0] = seen + 1;
                        mutex.release();
                        mutex.release();
                    }
                }
                return null;
            }));
        }
        for (Future<?> result : results) {
            result.get(SECONDS, TimeUnit.SECONDS);
        }
        threads.shutdown();
        equal(counter[0], 45);
    }

    static void recipeReadWriteLock() throws Exception {
        try (CuratorFramework one = curator(); CuratorFramework other = curator()) {
            InterProcessReadWriteLock first = new InterProcessReadWriteLock(one, "/rw");
            InterProcessReadWriteLock second = new InterProcessReadWriteLock(other, "/rw");
            first.readLock().acquire();
            check(second.readLock().acquire(SECONDS, TimeUnit.SECONDS), "two readers");
            check(!second.writeLock().acquire(200, TimeUnit.MILLISECONDS), "no writer");
            first.readLock().release();
            second.readLock().release();
            check(second.writeLock().acquire(SECONDS, TimeUnit.SECONDS), "a writer");
            second.writeLock().release();
        }
    }

    static void recipeLeaderLatch() throws Exception {
        try (CuratorFramework one = curator(); CuratorFramework other = curator()) {
            LeaderLatch first = new LeaderLatch(one, "/latch", "first");
            LeaderLatch second = new LeaderLatch(other, "/latch", "second");
            first.start();
            check(first.await(SECONDS, TimeUnit.SECONDS), "the first leads");
            second.start();
            await(() -> second.getParticipants().size() == 2, "two take part");
            equal(second.getLeader().getId(), "first");
            first.close();
            check(second.await(SECONDS, TimeUnit.SECONDS), "the second leads");
            second.close();
        }
    }

    static void recipeLeaderSelector() throws Exception {
        try (CuratorFramework one = curator(); CuratorFramework other = curator()) {
            List<String> led = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch both = new CountDownLatch(2);
            List<LeaderSelector> selectors = new ArrayList<>();
            for (CuratorFramework client : Arrays.asList(one, other)) {
                LeaderSelector selector =
                    new LeaderSelector(client, "/selector", new LeaderSelectorListenerAdapter() {
                        @Override
                        public void takeLeadership(CuratorFramework leader) {
                            led.add(leader == one ? "one" : "other");
                            both.countDown();
                        }
                    });
                selector.start();
                selectors.add(selector);
            }
            check(both.await(SECONDS, TimeUnit.SECONDS), "both led");
            for (LeaderSelector selector : selectors) {
                selector.close();
            }
            equal(led.size(), 2);
        }
    }

    static void recipeCache() throws Exception {
        try (CuratorFramework client = curator(); CuratorFramework writer = curator()) {
            Set<String> seen = ConcurrentHashMap.newKeySet();
            CountDownLatch ready = new CountDownLatch(1);
            writer.create().creatingParentsIfNeeded().forPath("/cache/early", bytes("0"));
            CuratorCache cache = CuratorCache.build(client, "/cache");
            cache.listenable().addListener(
                CuratorCacheListener.builder()
                    .forCreates(data -> seen.add("created " + data.getPath()))
                    .forChanges((old, data) -> seen.add("changed " + data.getPath()))
                    .forDeletes(data -> seen.add("deleted " + data.getPath()))
                    .forInitialized(ready::countDown)
                    .build());
            cache.start();
            check(ready.await(SECONDS, TimeUnit.SECONDS), "initialised");
            // One at a time: the cache reads a znode behind its event, and what changed twice until
            // then is one change to it.
            writer.create().forPath("/cache/a", bytes("1"));
            await(() -> seen.contains("created /cache/a"), "it sees a znode");
            writer.setData().forPath("/cache/a", bytes("2"));
            await(() -> seen.contains("changed /cache/a"), "it sees a change");
            writer.create().forPath("/cache/a/b", bytes("3"));
            await(() -> seen.contains("created /cache/a/b"), "it sees a child");
            writer.delete().deletingChildrenIfNeeded().forPath("/cache/a");
            await(
                () -> seen.containsAll(Arrays.asList(
                    "created /cache/early", "deleted /cache/a/b", "deleted /cache/a")),
                "it sees the end of both");
            cache.close();
        }
    }

    static void recipeTreeCache() throws Exception {
        try (CuratorFramework client = curator()) {
            client.create().creatingParentsIfNeeded().forPath("/tree/a/b", bytes("x"));
            TreeCache cache = new TreeCache(client, "/tree");
            cache.start();
            await(() -> cache.getCurrentData("/tree/a/b") != null, "it is loaded");
            client.setData().forPath("/tree/a/b", bytes("y"));
            await(
                () -> new String(cache.getCurrentData("/tree/a/b").getData()).equals("y"),
                "it follows");
            client.delete().forPath("/tree/a/b");
            await(() -> cache.getCurrentData("/tree/a/b") == null, "it forgets");
            cache.close();
        }
    }

    static void recipeTransaction() throws Exception {
        try (CuratorFramework client = curator()) {
            client.create().forPath("/txn", bytes("0"));
            List<CuratorTransactionResult> results = client.transaction().forOperations(
                client.transactionOp().check().withVersion(0).forPath("/txn"),
                client.transactionOp().create().forPath("/txn/a", bytes("1")),
                client.transactionOp().setData().forPath("/txn", bytes("1")),
                client.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL)
                    .forPath("/txn/s-", bytes("2")));
            equal(results.size(), 4);
            equal(results.get(3).getResultPath(), "/txn/s-0000000001");
            equal(results.get(2).getResultStat().getVersion(), 1);
            try {
                client.transaction().forOperations(
                    client.transactionOp().delete().forPath("/txn/a"),
                    client.transactionOp().check().withVersion(7).forPath("/txn"));
                check(false, "the second transaction fails");
            } catch (KeeperException.BadVersionException error) {
                List<OpResult> parts = error.getResults();
                equal(((OpResult.ErrorResult) parts.get(1)).getErr(), -103);
            }
            check(client.checkExists().forPath("/txn/a") != null, "nothing of it happened");
        }
    }

    static void recipeSemaphore() throws Exception {
        try (CuratorFramework one = curator(); CuratorFramework other = curator()) {
            InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(one, "/semaphore", 2);
            InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(other, "/semaphore", 2);
            Lease a = first.acquire();
            Lease b = second.acquire(SECONDS, TimeUnit.SECONDS);
            check(b != null, "two leases");
            check(first.acquire(200, TimeUnit.MILLISECONDS) == null, "not a third");
            second.returnLease(b);
            Lease c = first.acquire(SECONDS, TimeUnit.SECONDS);
            check(c != null, "the one that was returned");
            first.returnAll(Arrays.asList(a, c));
        }
    }

    static void recipePersistentRecursiveWatch() throws Exception {
        try (CuratorFramework client = curator()) {
            BlockingQueue<String> events = new LinkedBlockingQueue<>();
            client.create().forPath("/recursive");
            client.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE)
                .usingWatcher((Watcher) event -> events.add(event.getType() + " " + event.getPath()))
                .forPath("/recursive");
            client.create().forPath("/recursive/a");
            client.create().forPath("/recursive/a/b");
            client.setData().forPath("/recursive/a/b", bytes("x"));
            client.delete().forPath("/recursive/a/b");
            for (String expected : Arrays.asList(
                "NodeCreated /recursive/a", "NodeCreated /recursive/a/b",
                "NodeDataChanged /recursive/a/b", "NodeDeleted /recursive/a/b")) {
                equal(events.poll(SECONDS, TimeUnit.SECONDS), expected);
            }
        }
    }

    static void recipeBarrierAndCounter() throws Exception {
        try (CuratorFramework one = curator(); CuratorFramework other = curator()) {
            ExecutorService threads = Executors.newFixedThreadPool(2);
            List<Future<Boolean>> results = new ArrayList<>();
            for (CuratorFramework client : Arrays.asList(one, other)) {
                results.add(threads.submit(() -> {
                    DistributedDoubleBarrier barrier =
                        new DistributedDoubleBarrier(client, "/barrier", 2);
                    boolean entered = barrier.enter(SECONDS, TimeUnit.SECONDS);
                    DistributedAtomicLong counter =
                        new DistributedAtomicLong(client, "/counter", new RetryOneTime(10));
                    while (!counter.increment().succeeded()) {
                        Thread.yield();
                    }
                    return entered && barrier.leave(SECONDS, TimeUnit.SECONDS);
                }));
            }
            for (Future<Boolean> result : results) {
                check(result.get(SECONDS, TimeUnit.SECONDS), "both passed the barrier");
            }
            threads.shutdown();
            DistributedAtomicLong counter =
                new DistributedAtomicLong(one, "/counter", new RetryOneTime(10));
            equal(counter.get().postValue(), 2L);
        }
    }

    static void recipeNodesAndGroups() throws Exception {
        try (CuratorFramework one = curator(); CuratorFramework other = curator()) {
            PersistentNode node =
                new PersistentNode(one, CreateMode.EPHEMERAL, false, "/kept", bytes("x"));
            node.start();
            check(node.waitForInitialCreate(SECONDS, TimeUnit.SECONDS), "it is made");
            other.delete().forPath("/kept");
            await(() -> other.checkExists().forPath("/kept") != null, "it comes back");
            node.close();
            GroupMember first = new GroupMember(one, "/group", "first");
            GroupMember second = new GroupMember(other, "/group", "second");
            first.start();
            second.start();
            await(() -> first.getCurrentMembers().size() == 2, "two members");
            second.close();
            await(() -> first.getCurrentMembers().size() == 1, "one member");
            first.close();
        }
    }

    static void recipeSessionExpired() throws Exception {
        try (CuratorFramework client = curator()) {
            client.create().withMode(CreateMode.EPHEMERAL).forPath("/expiring");
            ZooKeeper old = client.getZookeeperClient().getZooKeeper();
            ZooKeeper thief =
                new ZooKeeper(hosts, 20_000, event -> { }, old.getSessionId(), old.getSessionPasswd());
            await(() -> thief.getState() == ZooKeeper.States.CONNECTED, "the session moves");
            thief.close();
            await(
                () -> client.getZookeeperClient().getZooKeeper().getSessionId() != old.getSessionId(),
                "a new session");
            await(() -> client.checkExists().forPath("/expiring") == null, "the ephemeral is gone");
        }
    }

    // -- Apache's client

    static ZooKeeper plain(Watcher watcher) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(hosts, 20_000, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
            watcher.process(event);
        });
        check(connected.await(SECONDS, TimeUnit.SECONDS), "connected");
        return client;
    }

    static byte[] bytes(String text) {
        return text.getBytes();
    }

    static void recipePlainModes() throws Exception {
        ZooKeeper client = plain(event -> { });
        client.create("/modes", bytes(""), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        for (CreateMode mode : CreateMode.values()) {
            Stat stat = new Stat();
            String made = client.create("/modes/" + mode + "-", bytes("x"), Ids.OPEN_ACL_UNSAFE, mode,
                stat, mode.isTTL() ? 100_000 : -1);
            check(made.startsWith("/modes/" + mode), made);
            equal(stat.getEphemeralOwner(), mode.isEphemeral() ? client.getSessionId() : 0L);
        }
        equal(client.getEphemerals().size(), 2);
        equal(client.getEphemerals("/none").size(), 0);
        equal(client.getAllChildrenNumber("/modes"), CreateMode.values().length);
        client.close();
        ZooKeeper other = plain(event -> { });
        equal(other.getChildren("/modes", false).size(), CreateMode.values().length - 2);
        other.close();
    }

    static void recipePlainAcls() throws Exception {
        ZooKeeper owner = plain(event -> { });
        ZooKeeper stranger = plain(event -> { });
        owner.addAuthInfo("digest", bytes("ann:secret"));
        owner.create("/acl", bytes("x"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        try {
            stranger.getData("/acl", false, null);
            check(false, "a stranger may not read");
        } catch (KeeperException.NoAuthException error) {
            equal(error.getPath(), "/acl");
        }
        List<ACL> open = new ArrayList<>(owner.getACL("/acl", new Stat()));
        open.add(new ACL(Perms.READ, new Id("world", "anyone")));
        equal(owner.setACL("/acl", open, 0).getAversion(), 1);
        equal(new String(stranger.getData("/acl", false, null)), "x");
        equal(stranger.getACL("/acl", new Stat()).get(0).getId().getId(), "ann:x");
        equal(owner.whoAmI().size(), 2);
        owner.close();
        stranger.close();
    }

    static void recipePlainMultiAndAsync() throws Exception {
        ZooKeeper client = plain(event -> { });
        client.create("/multi", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        List<OpResult> results = client.multi(Arrays.asList(
            Op.create("/multi/a", bytes("1"), Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL),
            Op.setData("/multi/a", bytes("2"), 0), Op.check("/multi/a", 1), Op.delete("/multi/a", 1)));
        equal(results.size(), 4);
        results = client.multi(Arrays.asList(Op.getData("/multi"), Op.getChildren("/missing")));
        check(((OpResult.GetDataResult) results.get(0)).getData() == null, "null stays null");
        equal(((OpResult.ErrorResult) results.get(1)).getErr(), -101);
        int count = 2000;
        CountDownLatch done = new CountDownLatch(count);
        ConcurrentLinkedQueue<Integer> versions = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < count; i++) {
            client.setData("/multi", bytes("x" + i), -1, (code, path, context, stat) -> {
                versions.add(stat.getVersion());
                done.countDown();
            }, null);
        }
        check(done.await(SECONDS, TimeUnit.SECONDS), "all are answered");
        int expected = 1;
        for (int version : versions) {
            equal(version, expected++);
        }
        client.close();
    }

    static void recipePlainWatchesOverReconnect() throws Exception {
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        ZooKeeper client = plain(event -> { });
        ZooKeeper writer = plain(event -> { });
        client.create("/watched", bytes("x"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        Watcher watcher = event -> {
            if (event.getType() != Watcher.Event.EventType.None) {
                events.add(event);
            }
        };
        client.addWatch("/watched", watcher, AddWatchMode.PERSISTENT);
        client.exists("/watched/later", watcher);
        long session = client.getSessionId();
        client.getTestable().closeSocket();
        writer.create("/watched/later", bytes(""), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        await(() -> client.getState() == ZooKeeper.States.CONNECTED, "it is back");
        equal(client.getSessionId(), session);
        equal(events.poll(SECONDS, TimeUnit.SECONDS).getPath().startsWith("/watched"), true);
        client.getData("/watched", false, null);
        events.clear();
        writer.setData("/watched", bytes("y"), -1);
        WatchedEvent event = events.poll(SECONDS, TimeUnit.SECONDS);
        equal(event.getType(), Watcher.Event.EventType.NodeDataChanged);
        client.removeAllWatches("/watched", Watcher.WatcherType.Any, false);
        try {
            client.removeAllWatches("/watched", Watcher.WatcherType.Any, false);
            check(false, "there is no watch any more");
        } catch (KeeperException.NoWatcherException error) {
            equal(error.getPath(), "/watched");
        }
        client.close();
        writer.close();
    }

    static void recipePlainConfigAndSync() throws Exception {
        ZooKeeper client = plain(event -> { });
        check(client.getConfig(false, new Stat()) != null, "a configuration");
        CountDownLatch synced = new CountDownLatch(1);
        client.sync("/", (code, path, context) -> {
            if (code == 0 && path.equals("/")) {
                synced.countDown();
            }
        }, null);
        check(synced.await(SECONDS, TimeUnit.SECONDS), "sync");
        ZooKeeper inside = new ZooKeeper(hosts + "/chroot/of/all", 20_000, event -> { });
        client.create("/chroot", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        client.create("/chroot/of", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        client.create("/chroot/of/all", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        equal(inside.create("/a", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT), "/a");
        check(client.exists("/chroot/of/all/a", false) != null, "below the root of that client");
        inside.close();
        client.close();
    }
}
