// Command node-volumes gives claims a directory of the node they are scheduled
// to, grows them and removes them. One copy per node serves the claims of that
// node alone, so there is nothing to elect and nothing to share.
//
// It serves classes whose provisioner is rocketmq.rs/node-volumes and whose
// binding mode is WaitForFirstConsumer. The class parameter shared: "true" puts
// the directory where every node mounts it, so that a pod takes its data along
// to another node as it would with a network disk.
//
// Sizes are recorded, not enforced: a directory has no quota.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	provisionerName = "rocketmq.rs/node-volumes"
	// nodeAnnotation names, on a volume, the copy that grows and removes it.
	nodeAnnotation = "rocketmq.rs/node"
	// selectedNodeAnnotation is the scheduler's choice on a claim.
	selectedNodeAnnotation  = "volume.kubernetes.io/selected-node"
	provisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
	// period is how often the caches are looked through; both are small and local.
	period = 200 * time.Millisecond
)

type provisioner struct {
	node       string
	localRoot  string
	sharedRoot string
	client     kubernetes.Interface
	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister
	classes    storagelisters.StorageClassLister
}

func main() {
	p := provisioner{}
	flag.StringVar(&p.node, "node", os.Getenv("NODE_NAME"), "name of this node")
	flag.StringVar(&p.localRoot, "root", "/var/local-volumes", "parent of the directories that stay on this node")
	flag.StringVar(&p.sharedRoot, "shared-root", "/var/shared-volumes", "parent of the directories that every node mounts")
	flag.Parse()
	if p.node == "" {
		klog.Exit("no node name: set --node or NODE_NAME")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		klog.Exit(err)
	}
	p.client = kubernetes.NewForConfigOrDie(config)

	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(p.client, 0)
	p.claims = factory.Core().V1().PersistentVolumeClaims().Lister()
	p.volumes = factory.Core().V1().PersistentVolumes().Lister()
	p.classes = factory.Storage().V1().StorageClasses().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	klog.Infof("serving node %s", p.node)

	for range time.Tick(period) {
		if err := p.pass(ctx); err != nil {
			klog.Error(err)
		}
	}
}

// pass looks at every claim and volume once. What fails is tried again in the
// next pass, since nothing is remembered between passes.
func (p *provisioner) pass(ctx context.Context) error {
	var failures []error
	claims, err := p.claims.List(labels.Everything())
	failures = append(failures, err)
	for _, claim := range claims {
		class := p.classOf(claim)
		switch {
		case class == nil || claim.DeletionTimestamp != nil:
		case claim.Spec.VolumeName != "":
			failures = append(failures, p.grow(ctx, claim))
		case claim.Annotations[selectedNodeAnnotation] == p.node:
			failures = append(failures, p.provision(ctx, claim, class))
		}
	}
	volumes, err := p.volumes.List(labels.Everything())
	failures = append(failures, err)
	for _, volume := range volumes {
		if p.owns(volume) {
			failures = append(failures, p.reclaim(ctx, volume))
		}
	}
	return errors.Join(failures...)
}

func (p *provisioner) classOf(claim *core.PersistentVolumeClaim) *storage.StorageClass {
	if claim.Spec.StorageClassName == nil {
		return nil
	}
	class, err := p.classes.Get(*claim.Spec.StorageClassName)
	if err != nil || class.Provisioner != provisionerName {
		return nil
	}
	return class
}

func (p *provisioner) owns(volume *core.PersistentVolume) bool {
	return volume.Annotations[provisionedByAnnotation] == provisionerName &&
		volume.Annotations[nodeAnnotation] == p.node
}

// provision makes the directory, then the volume already bound to its claim.
func (p *provisioner) provision(ctx context.Context, claim *core.PersistentVolumeClaim, class *storage.StorageClass) error {
	name := "pvc-" + string(claim.UID)
	if _, err := p.volumes.Get(name); err == nil {
		return nil // made in an earlier pass, the binder has not got to it yet
	}
	shared := class.Parameters["shared"] == "true"
	root := p.localRoot
	if shared {
		root = p.sharedRoot
	}
	directory := filepath.Join(root, name)
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return err
	}
	// hostPath volumes ignore fsGroup, and pods run as any user: open to all,
	// whatever the umask was.
	if err := os.Chmod(directory, 0o777); err != nil {
		return err
	}
	reclaim := core.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	filesystem, kind := core.PersistentVolumeFilesystem, core.HostPathDirectory
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{
			provisionedByAnnotation: provisionerName,
			nodeAnnotation:          p.node,
		}},
		Spec: core.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			PersistentVolumeReclaimPolicy: reclaim,
			StorageClassName:              class.Name,
			VolumeMode:                    &filesystem,
			PersistentVolumeSource: core.PersistentVolumeSource{
				HostPath: &core.HostPathVolumeSource{Path: directory, Type: &kind},
			},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
				ResourceVersion: claim.ResourceVersion,
			},
		},
	}
	if !shared {
		volume.Spec.NodeAffinity = onlyOn(p.node)
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create volume %s for claim %s/%s: %w", name, claim.Namespace, claim.Name, err)
	}
	klog.Infof("provisioned %s for %s/%s", name, claim.Namespace, claim.Name)
	return nil
}

func onlyOn(node string) *core.VolumeNodeAffinity {
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{
		NodeSelectorTerms: []core.NodeSelectorTerm{{
			MatchExpressions: []core.NodeSelectorRequirement{{
				Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node},
			}},
		}},
	}}
}

// grow records the larger size a bound claim asks for, on the volume first: a
// claim that shows a size its volume lacks would be a lie after a crash between.
func (p *provisioner) grow(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	volume, err := p.volumes.Get(claim.Spec.VolumeName)
	if err != nil || claim.Status.Phase != core.ClaimBound || !p.owns(volume) {
		return nil // not ours, or not there yet
	}
	wanted := claim.Spec.Resources.Requests[core.ResourceStorage]
	if capacity := volume.Spec.Capacity[core.ResourceStorage]; wanted.Cmp(capacity) > 0 {
		volume = volume.DeepCopy()
		volume.Spec.Capacity[core.ResourceStorage] = wanted
		if _, err := p.client.CoreV1().PersistentVolumes().Update(ctx, volume, meta.UpdateOptions{}); err != nil {
			return fmt.Errorf("grow volume %s to %s: %w", volume.Name, wanted.String(), err)
		}
	}
	if shown := claim.Status.Capacity[core.ResourceStorage]; wanted.Cmp(shown) > 0 {
		claim = claim.DeepCopy()
		claim.Status.Capacity[core.ResourceStorage] = wanted
		claim.Status.Conditions = nil
		_, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, meta.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("grow claim %s/%s to %s: %w", claim.Namespace, claim.Name, wanted.String(), err)
		}
		klog.Infof("grew %s/%s to %s", claim.Namespace, claim.Name, wanted.String())
	}
	return nil
}

// reclaim removes a released volume of reclaim policy Delete and its directory.
func (p *provisioner) reclaim(ctx context.Context, volume *core.PersistentVolume) error {
	if volume.Status.Phase != core.VolumeReleased || volume.Spec.HostPath == nil ||
		volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete {
		return nil
	}
	// Only a directory of the shape that provision makes: the path comes from an
	// object that others may write.
	parent, base := filepath.Split(filepath.Clean(volume.Spec.HostPath.Path))
	parent = filepath.Clean(parent)
	if (parent != p.localRoot && parent != p.sharedRoot) || !strings.HasPrefix(base, "pvc-") {
		return fmt.Errorf("volume %s names %s, outside %s and %s: not removed",
			volume.Name, volume.Spec.HostPath.Path, p.localRoot, p.sharedRoot)
	}
	if err := os.RemoveAll(volume.Spec.HostPath.Path); err != nil {
		return err
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete volume %s: %w", volume.Name, err)
	}
	klog.Infof("removed %s", volume.Name)
	return nil
}
