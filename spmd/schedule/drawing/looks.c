/* looks.c - colours of the kinds of events. */
#include "spmd/schedule/drawing/looks.h"

const struct sl_look sl_looks[SL_EVENT_KINDS] = {
    [SL_FORWARD] = {"forward", {{174, 204, 242}, {33, 84, 156}}},
    [SL_BACKWARD] = {"backward", {{170, 222, 190}, {20, 108, 70}}},
    [SL_INPUT_GRADIENT] = {"input gradient", {{250, 207, 140}, {184, 98, 0}}},
    [SL_WEIGHT_GRADIENT] = {"weight gradient", {{221, 192, 235}, {108, 52, 140}}},
    [SL_SEND_ACTIVATION] = {"message", {{235, 120, 120}, {235, 120, 120}}},
    [SL_REDUCE] = {"reduction", {{190, 190, 190}, {80, 80, 80}}},
    [SL_UNSHARD] = {"gathering", {{236, 200, 160}, {140, 90, 40}}},
    [SL_RESHARD] = {"gathered are dropped", {{60, 60, 60}, {60, 60, 60}}},
    [SL_EVENT_OPTIMIZER] = {"optimizer", {{120, 200, 205}, {120, 200, 205}}},
};
