/* layout.c - the hosts of a group: see costs.h. */
#include "collectives/costs/costs.h"

int sl_layout_most(const struct sl_layout *layout) {
    int most = 0;
    for (int host = 0; host < layout->hosts; host++)
        if (sl_layout_members(layout, host) > most) most = sl_layout_members(layout, host);
    return most;
}

int sl_layout_lanes(const struct sl_layout *layout) {
    int least = SL_MOST_LANES;
    for (int host = 0; host < layout->hosts; host++)
        if (sl_layout_members(layout, host) < least) least = sl_layout_members(layout, host);
    return least;
}

int sl_layout_host(const struct sl_layout *layout, int position) {
    int host = 0;
    while (layout->hosts > 1 && layout->first[host + 1] <= position) host++;
    return host;
}
