/* driver.h - what the parts of the fake CUDA's driver share. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#define FAKE_DRIVER()                                                                                                  \
    fake_record("call %s", __func__);                                                                                  \
    if (fake_fails(__func__)) return CUDA_ERROR_UNKNOWN

#endif
