/* topology_hwloc.c - hwloc's tree of packages, NUMA nodes, caches and cores, read off leaf by leaf. */
#include <hwloc.h>

#include "spmd/placement/topology.h"

/* Reads only the positions of processors: further data of hwloc would cost time. */
enum {
#if HWLOC_API_VERSION >= 0x00020800
    FLAGS = HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS,
#else
    FLAGS = 0,
#endif
};

static int number_of(hwloc_obj_t object) {
    if (!object) return -1;
    return object->os_index == HWLOC_UNKNOWN_INDEX ? (int)object->logical_index : (int)object->os_index;
}

static struct sl_pu describe(hwloc_topology_t tree, hwloc_obj_t pu, hwloc_obj_t next) {
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(tree, HWLOC_OBJ_CORE, pu);
    const hwloc_obj_t shared = next ? hwloc_get_common_ancestor_obj(tree, pu, next) : hwloc_get_root_obj(tree);
    return (struct sl_pu){
        .number = (int)pu->os_index,
        .core = (int)(core ? core : pu)->logical_index,
        .package = number_of(hwloc_get_ancestor_obj_by_type(tree, HWLOC_OBJ_PACKAGE, pu)),
        .node = hwloc_bitmap_first(pu->nodeset),
        .gap = pu->depth - shared->depth, /* levels up to the common ancestor */
    };
}

/* Lists PUs in hwloc's order, which is the tree's. */
static bool read_leaves(hwloc_topology_t tree, struct sl_topology *topology) {
    const int count = hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_PU);
    if (count < 1 || count > SL_MAX_PUS) return false;
    topology->count = count;
    for (int i = 0; i < count; i++) {
        const hwloc_obj_t pu = hwloc_get_obj_by_type(tree, HWLOC_OBJ_PU, (unsigned)i);
        if (pu->os_index >= SL_MAX_PUS) return false;
        topology->pu[i] = describe(tree, pu, pu->next_cousin);
    }
    return true;
}

static bool load(struct sl_topology *topology, const char *description) {
    hwloc_topology_t tree;
    if (hwloc_topology_init(&tree)) return false;
    hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_icache_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(tree, HWLOC_OBJ_L1CACHE, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(tree, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    hwloc_topology_set_flags(tree, FLAGS);
    const bool loaded = (!description || hwloc_topology_set_synthetic(tree, description) == 0) &&
                        hwloc_topology_load(tree) == 0 && read_leaves(tree, topology);
    hwloc_topology_destroy(tree);
    return loaded;
}

bool sl_topology_machine(struct sl_topology *topology) { return load(topology, NULL); }

bool sl_topology_synthetic(struct sl_topology *topology, const char *description) {
    return load(topology, description);
}
